// The correctness grid on a CUDA device. Exit code 0: all right; 1: a failure; 77: no device, skipped; 2: bad
// arguments.
//   test_gpu_grid [--results FILE] [--subset sanitizer] [--threads N] [--kernels N] [--device N]
//   test_gpu_grid --compile sm_90a [--threads N]     compiles the kernels and runs none: needs NVRTC and no device
// SACCADE_GRID_ONLY=index runs one case; SACCADE_GRID_SCHEDULES=k also runs k random legal schedules for each;
// SACCADE_GRID_EVERY=n takes every n-th problem.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "tests/support/call_runner.h"
#include "tests/support/grid.h"
#include "tests/support/grid_compile.h"
#include "tests/support/grid_runner.h"

namespace saccade::test_support {
namespace {

constexpr int kSkipped = 77;

struct Arguments {
  std::string command, results, compile_for;
  bool sanitizer = false;
  int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16);
  int kernels = 0, device = 0;
};

bool parse(int count, char** values, Arguments& arguments) {
  for (int i = 0; i < count; ++i) arguments.command += fmt::format("{}{}", i == 0 ? "" : " ", values[i]);
  for (int i = 1; i < count; i += 2) {
    const std::string_view name = values[i];
    if (i + 1 >= count) return false;
    const std::string value = values[i + 1];
    if (name == "--results") {
      arguments.results = value;
    } else if (name == "--subset" && value == "sanitizer") {
      arguments.sanitizer = true;
    } else if (name == "--compile") {
      arguments.compile_for = value;
    } else if (name == "--threads") {
      arguments.threads = std::max(1, std::atoi(value.c_str()));
    } else if (name == "--kernels") {
      arguments.kernels = std::max(1, std::atoi(value.c_str()));
    } else if (name == "--device") {
      arguments.device = std::atoi(value.c_str());
    } else {
      return false;
    }
  }
  return true;
}

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d", std::gmtime(&now));
  return text;
}

nlohmann::json row_json(const GridRow& row) {
  return {{"rule", row.rule},
          {"problem", nlohmann::json::parse(row.problem, nullptr, false)},
          {"cases", row.cases},
          {"failed", row.failed},
          {"refused", row.refused},
          {"worst_o_error_over_bound", row.worst_o},
          {"worst_o_case", row.worst_o_case},
          {"worst_lse_error_over_bound", row.worst_lse},
          {"worst_lse_case", row.worst_lse_case},
          {"schedules", row.schedules.size()}};
}

/// The commit comes from SACCADE_COMMIT, for the machine that runs this has no checkout.
bool write_results(const Arguments& arguments, const Target& target, const GridReport& report) {
  nlohmann::json result = {{"command", arguments.command},
                           {"commit", environment("SACCADE_COMMIT")},
                           {"date", today()},
                           {"machine",
                            {{"gpu", target.name},
                             {"arch", target.arch},
                             {"driver", cuda_driver_version()},
                             {"nvrtc", nvrtc_path().empty() ? "" : nvrtc_path().substr(nvrtc_path().rfind('/') + 1)}}},
                           {"seed", GridOptions{}.seed},
                           {"cases", report.cases},
                           {"runs", report.runs},
                           {"failed", report.failures.size()},
                           {"refused", report.refused},
                           {"seconds", report.seconds},
                           {"failures", report.failures},
                           {"rows", nlohmann::json::array()}};
  for (const GridRow& row : report.rows) result["rows"].push_back(row_json(row));
  std::ofstream file(arguments.results);
  file << "{";
  // One row a line: the file is read and compared by people.
  bool first = true;
  for (const auto& [key, value] : result.items()) {
    if (key == "rows") continue;
    file << (first ? "\n" : ",\n") << nlohmann::json(key).dump() << ": " << value.dump();
    first = false;
  }
  file << ",\n\"rows\": [";
  for (std::size_t i = 0; i < result["rows"].size(); ++i) file << (i == 0 ? "\n" : ",\n") << result["rows"][i].dump();
  file << "\n]}\n";
  return file.good();
}

int compile(const Arguments& arguments) {
  const auto target = cuda_target(arguments.compile_for);
  if (!target.ok()) {
    std::printf("%s\n", target.status().message().c_str());
    return 2;
  }
  if (const auto compiler = nvrtc_compiler(); !compiler.ok()) {
    std::printf("skipped: %s\n", compiler.status().message().c_str());
    return kSkipped;
  }
  TemporaryEngine engine;
  GridRunOptions options;
  options.threads = arguments.threads;
  read_environment(options);
  const GridCompileReport report = compile_grid(*engine, make_grid({.target = Target::Kind::cuda}), *target, options);
  for (const std::string& line : report.failures) std::printf("%s\n", line.c_str());
  for (const std::string& line : report.spills) std::printf("spills %s\n", line.c_str());
  std::printf("%d kernels for %s, %.0f ms each, the slowest %.0f ms; %zu failed, %zu spill\n", report.kernels,
              target->arch.c_str(), report.compile_ms / std::max(1, report.kernels), report.slowest_ms,
              report.failures.size(), report.spills.size());
  return report.failures.empty() && report.kernels > 0 ? 0 : 1;
}

int run(const Arguments& arguments) {
  auto device = cuda_device(arguments.device);
  if (!device.ok()) {
    std::printf("skipped: %s\n", device.status().message().c_str());
    return kSkipped;
  }
  TemporaryEngine engine;
  if (!engine.status().ok()) {
    std::printf("%s\n", engine.status().message().c_str());
    return 1;
  }
  GridOptions grid{.target = Target::Kind::cuda};
  if (arguments.kernels > 0) grid.kernels = arguments.kernels;
  const std::vector<GridCase> cases = arguments.sanitizer ? make_sanitizer_subset(grid) : make_grid(grid);
  GridRunOptions options;
  options.devices = {*device};
  options.threads = arguments.threads;
  read_environment(options);
  const GridReport report = run_grid(*engine, cases, options);
  std::printf("%s%s", summary(report).c_str(), report.cases == 0 ? "no case ran\n" : "");
  if (!arguments.results.empty() && !write_results(arguments, (*device)->target(), report)) {
    std::printf("cannot write %s\n", arguments.results.c_str());
    return 1;
  }
  return report.failures.empty() && report.cases > 0 ? 0 : 1;
}

}  // namespace
}  // namespace saccade::test_support

int main(int count, char** values) {
  saccade::test_support::Arguments arguments;
  if (!saccade::test_support::parse(count, values, arguments)) {
    std::printf("usage: %s [--results FILE] [--subset sanitizer] [--threads N] [--kernels N] [--device N]\n",
                values[0]);
    return 2;
  }
  return arguments.compile_for.empty() ? saccade::test_support::run(arguments)
                                       : saccade::test_support::compile(arguments);
}
