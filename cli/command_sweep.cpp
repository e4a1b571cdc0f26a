// saccade sweep: tunes all problems of profiles, resumes where an earlier sweep ended.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/byte_source.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/workload.h"
#include "runtime/capture.h"
#include "tuner/session.h"
#include "tuner/sweep.h"

namespace saccade::cli {
namespace {

using tuner::SweepRow;
using tuner::SweepState;

constexpr std::uint64_t kMaxProfileBytes = std::uint64_t{64} << 20;

struct Shard {
  int index = 0, count = 1;
};

std::optional<int> number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? std::nullopt : number_from<int>(text);
}

/// From the variables that a job launcher sets for each of its processes.
Expected<Shard> shard_from_environment() {
  const auto task = number_of("SLURM_ARRAY_TASK_ID"), tasks = number_of("SLURM_ARRAY_TASK_COUNT");
  const auto first = number_of("SLURM_ARRAY_TASK_MIN");
  const auto step = number_of("SLURM_ARRAY_TASK_STEP");  // of --array=0-6:2
  if (task && tasks) return Shard{(*task - first.value_or(0)) / std::max(step.value_or(1), 1), *tasks};
  for (const auto& [rank, size] : {std::pair{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   std::pair{"PMI_RANK", "PMI_SIZE"}, std::pair{"SLURM_PROCID", "SLURM_NTASKS"}}) {
    const auto index = number_of(rank), count = number_of(size);
    if (index && count) return Shard{*index, *count};
  }
  return Status::invalid_argument(
      "--shard auto: no Slurm, Open MPI or PMI variables are set; give --shard I/N, such as "
      "--shard $JOB_COMPLETION_INDEX/8 on Kubernetes");
}

Expected<Shard> shard_from_flag(const std::string& text) {
  Shard shard;
  if (text.empty()) return shard;
  if (text == "auto") {
    SACCADE_ASSIGN(shard, shard_from_environment());
  } else {
    const std::size_t slash = text.find('/');
    const auto index = number_from<int>(std::string_view(text).substr(0, slash));
    const auto count =
        slash == std::string::npos ? std::nullopt : number_from<int>(std::string_view(text).substr(slash + 1));
    if (!index || !count)
      return Status::invalid_argument(fmt::format("--shard {}: I/N is possible, such as 0/8, or auto", text));
    shard = {*index, *count};
  }
  if (shard.count < 1 || shard.index < 0 || shard.index >= shard.count) {
    return Status::invalid_argument(
        fmt::format("--shard: part {} of {} does not exist; parts count from 0", shard.index, shard.count));
  }
  return shard;
}

/// Of a file, or of a profile that comes with Saccade and has no file of its name in its way.
Expected<std::string> text_of_profile(const std::string& name) {
  struct stat status{};
  const bool is_file = stat(name.c_str(), &status) == 0 && S_ISREG(status.st_mode);
  std::string known;
  for (const tuner::ShippedProfile& profile : tuner::shipped_profiles()) {
    if (!is_file && name == profile.name) return std::string(profile.text);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", profile.name);
  }
  auto text = read_text_file(name, kMaxProfileBytes);
  if (text.ok() || is_file || name.find_first_of("/.") != std::string::npos) return text;
  return Status::not_found(fmt::format("{}: no such file, and no profile that comes with Saccade: {}", name, known));
}

Expected<std::vector<tuner::SweepCase>> cases_of(const SweepFlags& flags) {
  std::vector<tuner::SweepCase> cases;
  for (const std::string& path : flags.profiles) {
    SACCADE_ASSIGN(const std::string text, text_of_profile(path));
    const auto read = tuner::read_profile(text);
    if (!read.ok()) return Status::invalid_argument(fmt::format("{}: {}", path, read.status().message()));
    cases.insert(cases.end(), read->begin(), read->end());
  }
  return cases;
}

int count_of(const std::vector<SweepRow>& rows, SweepState state) {
  return static_cast<int>(
      std::count_if(rows.begin(), rows.end(), [&](const SweepRow& row) { return row.state == state; }));
}

std::string name_of_row(const SweepRow& row) {
  const std::string text = describe(row.item.problem, row.item.shape);
  return row.item.label.empty() ? text : row.item.label + ": " + text;
}

Json json_of(const SweepRow& row) {
  Json json = parsed(to_json(row.item));
  json["label"] = row.item.label;
  json["state"] = name_of(row.state);
  if (!row.family.empty()) json["family"] = row.family;
  if (!row.note.empty()) json["note"] = row.note;
  if (row.state != SweepState::measured) return json;
  json["schedule"] = parsed(to_json(row.schedule));
  json["default_us"] = row.default_us;
  json["winner_us"] = row.winner_us;
  json["gain"] = row.gain;
  json["elapsed_ms"] = row.elapsed_ms;
  return json;
}

Text rows_text(const std::vector<SweepRow>& rows) {
  TextTable table({">default", ">winner", ">gain", "problem", "state"});
  for (const SweepRow& row : rows) {
    const bool measured = row.state == SweepState::measured;
    const bool explains = row.state == SweepState::failed || row.state == SweepState::unsupported;
    const std::string note = explains ? ": " + row.note.substr(0, row.note.find('\n')) : std::string();
    table.add({measured ? human_time_us(row.default_us) : "-", measured ? human_time_us(row.winner_us) : "-",
               measured ? fmt::format("{:+.1f}%", 100 * row.gain) : "-", name_of_row(row),
               measured ? Text(schedule_text(row.schedule)) : Text(name_of(row.state) + note)});
  }
  return table.text();
}

/// How long the cases to measure take at most; nothing for a policy without a budget.
std::string time_text(const std::vector<SweepRow>& rows, TuningPolicy policy) {
  const int count = count_of(rows, SweepState::to_measure);
  const double budget_ms = tuner::rules_of(policy).budget_ms;
  if (count == 0) return "nothing to measure";
  if (!std::isfinite(budget_ms)) return fmt::format("{} to measure, exhaustively: minutes to an hour each", count);
  return fmt::format("{} to measure, at most {}", count, clock_text(count * budget_ms / 1000));
}

std::string summary_text(const std::vector<SweepRow>& rows) {
  std::string text;
  for (const SweepState state :
       {SweepState::measured, SweepState::known, SweepState::to_measure, SweepState::unsupported, SweepState::failed}) {
    const int count = count_of(rows, state);
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name_of(state));
  }
  return text;
}

/// Those that --device names, one or several between commas; "cuda:all": all there are.
Expected<std::vector<std::shared_ptr<const Device>>> open_devices(const EngineFlags& flags) {
  std::vector<std::string> names;
  if (flags.device == "cuda:all") {
    for (int i = 0; i < cuda_device_count(); ++i) names.push_back(fmt::format("cuda:{}", i));
    if (names.empty()) return Status::unsupported("--device cuda:all: there is no CUDA device");
  } else {
    for (std::size_t begin = 0; begin <= flags.device.size();) {
      const std::size_t end = std::min(flags.device.find(',', begin), flags.device.size());
      names.push_back(flags.device.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  std::vector<std::shared_ptr<const Device>> devices;
  for (const std::string& name : names) {
    EngineFlags one = flags;
    one.device = name;
    SACCADE_ASSIGN(auto device, open_device(one));
    for (const auto& other : devices) {
      if (other->target().kind == device->target().kind && other->ordinal() == device->ordinal())
        return Status::invalid_argument(fmt::format("--device {}: {} is named twice", flags.device, name));
      if (tuning_identity(other->target()) != tuning_identity(device->target()))
        return Status::invalid_argument(fmt::format("--device {}: a {} and a {} need a sweep each", flags.device,
                                                    other->target().name, device->target().name));
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

/// Appends a line of JSON for each row that was raced, as it comes: what `saccade report` reads.
class Log {
 public:
  Status open(const SweepFlags& flags, const Target& target) {
    path_ = flags.log;
    if (path_.empty()) return {};
    device_ = cli::json_of(target);
    return check_output("--log", path_, flags.profiles);
  }
  void add(const SweepRow& row, const tuner::TuneReport* report) {
    if (path_.empty() || report == nullptr) return;
    Json line = json_of(row);
    line["ordinal"] = row.ordinal;
    line["device"] = device_;
    line["report"] = parsed(tuner::to_json(*report));
    const int error = append_line(path_, line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    if (error != 0 && status_.ok())
      status_ = Status::io_error(fmt::format("--log {}: {}; winners are in the cache", path_, std::strerror(error)));
  }
  /// Of the first line that could not be written.
  const Status& status() const { return status_; }

 private:
  std::string path_;
  Json device_;
  Status status_;
};

}  // namespace

Expected<int> sweep_command(const Options& options) {
  TuningPolicy policy = TuningPolicy::normal;
  if (!options.engine.tuning.empty()) {
    SACCADE_ASSIGN(policy, tuning_policy(options.engine.tuning));
  }
  if (policy == TuningPolicy::off)
    return Status::invalid_argument("sweep measures: --tuning is quick, normal or exhaustive");
  if (options.engine.no_cache && !options.sweep.dry_run)
    return Status::invalid_argument("a sweep's winners go to the cache: leave --no-cache out");
  SACCADE_ASSIGN(const Shard shard, shard_from_flag(options.sweep.shard));
  SACCADE_ASSIGN(const std::vector<tuner::SweepCase> cases, cases_of(options.sweep));
  SACCADE_ASSIGN(const auto devices, open_devices(options.engine));
  SACCADE_ASSIGN(const std::shared_ptr<Engine> engine, open_engine(options.engine));
  if (!options.sweep.dry_run) SACCADE_TRY(check_writable(engine->store()));
  if (!options.sweep.dry_run && engine->is_frozen())
    return Status::invalid_argument("SACCADE_FROZEN is set: nothing is measured; unset it for a sweep");
  const Target& target = devices.front()->target();
  Log log;
  if (!options.sweep.dry_run) SACCADE_TRY(log.open(options.sweep, target));
  Progress progress("sweep", 0, options.progress);
  tuner::SweepOptions sweep;
  sweep.policy = policy;
  sweep.again = options.sweep.again;
  sweep.cancel = &interrupted();
  if (options.sweep.budget) sweep.budget_ms = 1000 * *options.sweep.budget;
  sweep.started = [&](int done, int total, const SweepRow& row) {
    progress.step(done, fmt::format("{} of {}: {}", done + 1, total, name_of_row(row)));
  };
  sweep.progress = [&](const SweepRow& row, const tuner::TuneProgress& step) {
    const std::string where = devices.size() > 1 ? fmt::format("GPU {}: ", row.ordinal) : std::string();
    progress.detail(fmt::format("{}{} {}/{}", where, step.phase, step.done, step.total));
  };
  sweep.finished = [&](const SweepRow& row, const tuner::TuneReport* report) { log.add(row, report); };
  std::vector<SweepRow> rows =
      plan_sweep(*engine, devices.front(), shard_of(tuner::distinct_cases(cases), shard.index, shard.count), sweep);
  if (!options.sweep.dry_run) run_sweep(*engine, devices, rows, sweep);
  progress.clear();
  if (options.json) {
    Json list = Json::array();
    for (const SweepRow& row : rows) list.push_back(json_of(row));
    print_json({{"device", json_of(target)},
                {"devices", devices.size()},
                {"policy", name_of(policy)},
                {"shard", {{"index", shard.index}, {"count", shard.count}}},
                {"dry_run", options.sweep.dry_run},
                {"rows", list}});
  } else {
    print_line(rows_text(rows));
    print_line(options.sweep.dry_run ? time_text(rows, policy) : summary_text(rows));
    if (!options.sweep.dry_run && count_of(rows, SweepState::to_measure) > 0)
      print_line("The same command goes on with what is left.");
  }
  if (interrupted()) return kExitInterrupted;
  SACCADE_TRY(log.status());
  return count_of(rows, SweepState::failed) > 0 ? kExitFailure : kExitOk;
}

}  // namespace saccade::cli
