// The command line's grammar and its help, on CLI11.
#pragma once

#include "base/status.h"
#include "cli/options.h"

namespace saccade::cli {

/// Fills `options`, for a command to run; or prints help or the version and returns false. An error is one of usage;
/// `options.json` is right even then.
Expected<bool> parse_arguments(int argc, char** argv, Options& options);

}  // namespace saccade::cli
