// The commands. Each returns its exit code, or the Status that main turns into a message and a code.
#pragma once

#include <string>

#include "base/status.h"
#include "cli/options.h"

namespace saccade::cli {

Expected<int> doctor_command(const Options& options);
Expected<int> demo_command(const Options& options);
Expected<int> run_command(const Options& options);
Expected<int> emit_command(const Options& options);
Expected<int> compile_command(const Options& options);
Expected<int> tune_command(const Options& options);
Expected<int> sweep_command(const Options& options);
Expected<int> report_command(const Options& options);
Expected<int> bench_command(const Options& options);
Expected<int> explain_command(const Options& options);
Expected<int> cache_command(const Options& options);
/// Those of the cache command's actions that touch no cache.
Expected<int> pack_command(const Options& options);

}  // namespace saccade::cli
