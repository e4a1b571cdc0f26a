// Reading JSON from anywhere: bounded in size and depth, no repeated keys, and errors that name the key. For .cpp files
// only.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/status.h"

namespace saccade::json {

/// At most `max_bytes` and 16 levels; repeated keys are errors.
Expected<nlohmann::json> parse(std::string_view text, std::size_t max_bytes);

/// Sorted keys, no spaces. Strings must be valid UTF-8, which names and canonical programs are.
std::string dump(const nlohmann::json& value);

/// `value` must be an object with no key but these.
Status only_keys(const nlohmann::json& value, std::string_view where, std::initializer_list<std::string_view> known);
/// The member, or null where there is none.
const nlohmann::json& at(const nlohmann::json& object, const char* key);
Expected<std::string> text(const nlohmann::json& value, std::string_view key);
Expected<std::int64_t> integer(const nlohmann::json& value, std::string_view key, std::int64_t lowest,
                               std::int64_t highest);
Status wrong_type(std::string_view key, std::string_view wanted);
/// For messages: short, and nothing that a terminal could act on.
std::string shown(std::string_view text);

}  // namespace saccade::json
