// The command line's grammar and its help, on CLI11.
#pragma once

#include <optional>

#include "cli/options.h"

namespace saccade::cli {

/// Fills `options`; or prints help, the version or what is wrong, and returns the exit code.
std::optional<int> parse_arguments(int argc, char** argv, Options& options);

}  // namespace saccade::cli
