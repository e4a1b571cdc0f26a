// JSON that the commands print; only included by their .cpp files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/verification.h"
#include "generator/family.h"
#include "runtime/engine.h"

namespace saccade::cli {

using Json = nlohmann::ordered_json;

/// Pretty ASCII, on stdout. Invalid UTF-8 (from file names) is replaced; NaN and infinity become null.
void print_json(const Json& document);
/// Of text that the library made.
Json parsed(const std::string& json);

Json json_of(const Cost& cost);
Json json_of(const Shape& shape, const Problem& problem);
Json json_of(const Target& target);
Json json_of(const Verification& verification, bool with_lse);

}  // namespace saccade::cli
