// What a tuned pack gives a host that has never tuned: for each problem of the profiles that come with Saccade, on an empty user
// cache, the time from a new engine to the first result, and how fast the kernel is beside the choice of this build's cost model.
//
//   SACCADE_PACK_PATH=FILE first_result --device cuda[:N] [--profile FILE] [--rounds N] [--commit HASH] > file.json
//
// The CUDA context and the operands are there before the clock starts; opening the pack, choosing, compiling or loading, one run and
// a synchronisation are timed. Speeds are medians of interleaved rounds, measured as a sweep measures.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/profile_cases.h"
#include "runtime/device_name.h"
#include "runtime/engine.h"
#include "tuner/call.h"
#include "tuner/local_runner.h"
#include "tuner/race.h"
#include "tuner/session.h"
#include "tuner/statistics.h"

namespace saccade::bench {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr int kUsageError = 2;

struct Options {
  int ordinal = 0;
  int rounds = 15;
  std::string profile, commit, command;
};

std::optional<Options> parse(int count, char** arguments) {
  Options options;
  bool has_device = false;
  for (int i = 0; i < count; ++i) options.command += (i == 0 ? "" : " ") + std::string(arguments[i]);
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = arguments[i], value = arguments[i + 1];
    if (name == "--device") {
      const Expected<DeviceName> device = parse_device_name(value);
      has_device = device.ok() && device->kind == Target::Kind::cuda;
      options.ordinal = device.ok() ? device->ordinal : 0;
    } else if (name == "--profile") {
      options.profile = value;
    } else if (name == "--rounds") {
      options.rounds = std::atoi(value.c_str());
    } else if (name == "--commit") {
      options.commit = value;
    } else {
      return std::nullopt;
    }
  }
  if (!has_device || options.rounds < 1 || count % 2 == 0) return std::nullopt;
  return options;
}

Expected<std::vector<tuner::SweepCase>> cases_of(const Options& options) {
  if (!options.profile.empty()) {
    SACCADE_ASSIGN(const auto cases, read_profile_file(options.profile));
    return tuner::distinct_cases(cases);
  }
  std::vector<tuner::SweepCase> cases;
  for (const tuner::ShippedProfile& shipped : tuner::shipped_profiles()) {
    SACCADE_ASSIGN(const auto read, tuner::read_profile(shipped.text));
    cases.insert(cases.end(), read.begin(), read.end());
  }
  return tuner::distinct_cases(cases);
}

/// A folder that is gone with its owner.
class EmptyFolder {
 public:
  EmptyFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "saccade-first-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  EmptyFolder(const EmptyFolder&) = delete;
  EmptyFolder& operator=(const EmptyFolder&) = delete;
  ~EmptyFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct FirstResult {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<const Plan> plan;
  double ms = 0;
  double run_ms = 0;  ///< of that the run itself, with its launch: how long a second one takes
};

Expected<FirstResult> first_result(const std::shared_ptr<const Device>& device, const tuner::SweepCase& item,
                                   const std::string& cache, const tuner::CallMemory& memory,
                                   const tuner::DeviceBindings& operands, const expr::Bindings& bindings) {
  FirstResult result;
  const auto begin = Clock::now();
  EngineOptions options;
  options.cache.directory = cache;
  SACCADE_ASSIGN(result.engine, Engine::create(options));
  PrepareOptions prepare;
  prepare.bindings.scalars = bindings.scalars;
  SACCADE_ASSIGN(result.plan, result.engine->prepare(device, item.problem, item.shape, prepare));
  SACCADE_ASSIGN(const tuner::Workspace workspace, tuner::Workspace::allocate(device, *result.plan));
  RunArguments arguments = tuner::arguments_of(memory, operands, item.problem);
  arguments.workspace = workspace.data();
  SACCADE_TRY(result.plan->run(arguments));
  SACCADE_TRY(device->synchronize());
  result.ms = milliseconds_since(begin);
  const auto again = Clock::now();
  SACCADE_TRY(result.plan->run(arguments));
  SACCADE_TRY(device->synchronize());
  result.run_ms = milliseconds_since(again);
  return result;
}

/// Medians over interleaved rounds: the chosen schedule, the same again (how far two samples of one thing lie apart) and `standard`.
Status add_speeds(json& row, const FirstResult& first, const std::shared_ptr<const Device>& device,
                  const tuner::SweepCase& item, const Schedule& standard, int rounds) {
  enum : int { kChosen, kAgain, kStandard };
  tuner::RunnerProblem problem{item.problem,
                               item.shape,
                               {},
                               tuner::rules_of(TuningPolicy::normal).measurement,
                               first.plan->report().cost.total_us};
  problem.bindings.scalars = item.scalars;
  SACCADE_ASSIGN(const auto runner, tuner::LocalRunner::open(*first.engine, device, problem));
  for (const auto& [id, schedule] : {std::pair<int, const Schedule&>{kChosen, first.plan->report().schedule},
                                     {kAgain, first.plan->report().schedule},
                                     {kStandard, standard}}) {
    const tuner::AddOutcome outcome = runner->add_trusted(id, schedule);
    if (outcome.fault != tuner::Fault::none) return Status::unsupported(outcome.reason);
  }
  std::vector<double> samples[3], gain, noise;
  for (int round = 0; round < rounds; ++round) {
    double us[3] = {};
    for (int i = 0; i < 3; ++i) {
      const int id = (i + round) % 3;
      SACCADE_ASSIGN(us[id], runner->sample(id));
      samples[id].push_back(us[id]);
    }
    gain.push_back(us[kStandard] / us[kChosen]);
    noise.push_back(us[kAgain] / us[kChosen]);
  }
  row["us"] = tuner::median(samples[kChosen]);
  row["default_us"] = tuner::median(samples[kStandard]);
  row["gain"] = tuner::median(gain) - 1;
  row["noise"] = tuner::noise_of(noise);
  return {};
}

Expected<json> row_of(const std::shared_ptr<const Device>& device, const tuner::SweepCase& item, int rounds) {
  json row{{"label", item.label},
           {"problem", json::parse(to_json(item.problem))},
           {"shape", json::parse(to_json(item.shape))},
           {"name", case_name(item.label, item.shape)}};
  expr::Bindings given;
  given.scalars = item.scalars;
  const tuner::OwnedBindings owned = tuner::race_bindings(item.problem, item.shape, given, 1);
  SACCADE_ASSIGN(
      const tuner::DeviceBindings operands,
      tuner::upload_bindings(device, item.problem, owned.bindings, tuner::lengths_of(item.problem, item.shape)));
  std::optional<tuner::CallMemory> memory;
  SACCADE_ASSIGN(memory, tuner::allocate_call(device, item.problem, item.shape, 0));
  for (const tuner::Operand* operand : {&memory->q, &memory->k, &memory->v})  // poison is NaN: a case of its own
    SACCADE_TRY(device->fill(operand->memory.data(), 0, operand->memory.bytes()));
  SACCADE_TRY(device->synchronize());
  const EmptyFolder cache;
  SACCADE_ASSIGN(const FirstResult first, first_result(device, item, cache.path(), *memory, operands, owned.bindings));
  memory.reset();
  const PlanReport& report = first.plan->report();
  row["first_ms"] = first.ms;
  row["run_ms"] = first.run_ms;
  row["schedule_source"] = report.schedule_source;
  row["binary_source"] = report.binary_source;
  row["tuned"] = first.engine->statistics().tuned;
  row["schedule"] = json::parse(to_json(report.schedule));
  SACCADE_ASSIGN(const Family* family, choose_family(item.problem, device->target(), &item.shape));
  const auto tuned = first.engine->store().find_tuned(tuned_key(*family, item.problem, item.shape, device->target()));
  if (!tuned) return row;
  const json provenance = json::parse(tuned->provenance, nullptr, false);
  if (!provenance.is_object()) return row;
  row["sweep_us"] = provenance.value("winner_us", 0.0);
  row["sweep_noise"] = provenance.value("noise", 0.0);
  const std::vector<RankedSchedule> ranked = rank_candidates(*family, item.problem, device->target(),
                                                             planning_shape(item.shape, item.problem), owned.bindings);
  if (ranked.empty())
    return Status::unsupported(
        fmt::format("{} has no schedule for {}", family->name, case_name(item.label, item.shape)));
  row["default_schedule"] = json::parse(to_json(ranked.front().schedule));
  SACCADE_TRY(add_speeds(row, first, device, item, ranked.front().schedule, rounds));
  return row;
}

int run(const Options& options) {
  const auto device = cuda_device(options.ordinal);
  const auto cases = cases_of(options);
  for (const Status& status : {device.status(), cases.status()}) {
    if (status.ok()) continue;
    fmt::print(stderr, "first_result: {}\n", status.message());
    return 1;
  }
  json rows = json::array();
  for (const tuner::SweepCase& item : *cases) {
    auto row = row_of(*device, item, options.rounds);
    if (!row.ok()) row = json{{"label", item.label}, {"error", row.status().message()}};
    fmt::print(stderr, "{}\n", row->dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 100));
    rows.push_back(*std::move(row));
  }
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const char* const pack = std::getenv("SACCADE_PACK_PATH");
  fmt::print("{}\n", json{{"command", options.command},
                          {"commit", options.commit},
                          {"pack_path", pack == nullptr ? "" : pack},
                          {"machine", {{"device", (*device)->target().name}, {"driver", cuda_driver_version()}}},
                          {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
                          {"rows", std::move(rows)}}
                         .dump(1));
  return 0;
}

}  // namespace
}  // namespace saccade::bench

int main(int count, char** arguments) {
  const auto options = saccade::bench::parse(count, arguments);
  if (options) return saccade::bench::run(*options);
  std::fputs("usage: first_result --device cuda[:N] [--profile FILE] [--rounds N] [--commit HASH]\n", stderr);
  return saccade::bench::kUsageError;
}
