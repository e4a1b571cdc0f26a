// The command line: parses, runs the command, reports its failure.
#pragma once

namespace saccade::cli {

/// Returns the exit code.
int run_app(int argc, char** argv);

}  // namespace saccade::cli
