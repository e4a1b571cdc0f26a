#include "cli/session.h"

#include <fmt/format.h>

#include "cli/byte_source.h"
#include "runtime/device_name.h"

namespace saccade::cli {
namespace {

constexpr std::uint64_t kMaxScheduleBytes = 1 << 16;

bool is_cuda_arch(const std::string& arch) { return arch.starts_with("sm_"); }

}  // namespace

Expected<std::shared_ptr<const Device>> open_device(const EngineFlags& flags) {
  const Expected<DeviceName> name = parse_device_name(flags.device);
  if (!name.ok()) return Status::invalid_argument(fmt::format("--device: {}", name.status().message()));
  if (name->kind == Target::Kind::cpu) {
    if (is_cuda_arch(flags.arch))
      return Status::invalid_argument(fmt::format("--arch {} does not run on --device cpu", flags.arch));
    return cpu_device(flags.threads, flags.arch);
  }
  auto device = cuda_device(name->ordinal);
  if (!device.ok() && device.status().code() == StatusCode::not_found)
    return Status::unsupported(fmt::format("--device {}: {}", flags.device, device.status().message()));
  return device;
}

Expected<std::shared_ptr<Engine>> open_engine(const EngineFlags& flags, bool finds_packs) {
  EngineOptions options;
  options.cache.finds_packs = finds_packs;
  options.cache.directory = flags.cache_dir;
  options.cache.memory_only = flags.no_cache;
  options.cpu_threads = flags.threads;
  return Engine::create(options);
}

Status check_writable(cache::Store& store) {
  for (const cache::LayerStatistics& layer : store.statistics())
    if (layer.writable && layer.path == store.user_path()) return {};
  return Status::io_error(store.user_path().empty()
                              ? "there is no user database to write to; --cache-dir names its folder"
                              : fmt::format("{} cannot be written", store.user_path()));
}

Expected<Session> open_session(const EngineFlags& flags) {
  Session session;
  SACCADE_ASSIGN(session.device, open_device(flags));
  SACCADE_ASSIGN(session.engine, open_engine(flags));
  return session;
}

Expected<Target> build_target(const EngineFlags& flags) {
  if (is_cuda_arch(flags.arch)) return cuda_target(flags.arch);
  SACCADE_ASSIGN(const std::shared_ptr<const Device> device, open_device(flags));
  return device->target();
}

Expected<TuningPolicy> tuning_policy(const std::string& name) {
  for (const TuningPolicy policy :
       {TuningPolicy::off, TuningPolicy::quick, TuningPolicy::normal, TuningPolicy::exhaustive})
    if (name == name_of(policy)) return policy;
  return Status::invalid_argument(fmt::format("--tuning {}: known are off, quick, normal, exhaustive", name));
}

const char* name_of(TuningPolicy policy) {
  switch (policy) {
    case TuningPolicy::off: return "off";
    case TuningPolicy::quick: return "quick";
    case TuningPolicy::normal: return "normal";
    case TuningPolicy::exhaustive: return "exhaustive";
  }
  return "unknown";
}

Expected<PrepareOptions> prepare_options(const EngineFlags& flags, const Workload& workload,
                                         TuningPolicy default_policy) {
  PrepareOptions options;
  options.tuning = default_policy;
  if (!flags.tuning.empty()) {
    SACCADE_ASSIGN(options.tuning, tuning_policy(flags.tuning));
  }
  options.bindings = workload.bindings();
  options.use_cache = !flags.no_cache;
  if (!flags.schedule.empty()) {
    SACCADE_ASSIGN(options.schedule, schedule_from_flag(flags.schedule));
  }
  return options;
}

Expected<Schedule> schedule_from_flag(const std::string& text) {
  if (text.starts_with('{')) return schedule_from_json(text);
  SACCADE_ASSIGN(const std::string json, read_text_file(text, kMaxScheduleBytes));
  return schedule_from_json(json);
}

Status check_schedule(const Schedule& schedule, const Workload& workload, const Target& target) {
  const Family* const family = find_family(schedule.family);
  if (!family || family->target_kind != target.kind)
    return Status::invalid_argument(
        fmt::format("--schedule: no family '{}' builds for {}", schedule.family, target.arch));
  SACCADE_TRY(family->supports(workload.problem, target));
  return family->legal(workload.problem, target, workload.shape, schedule);
}

Expected<Schedule> choose_offline(const EngineFlags& flags, const Workload& workload, const Target& target) {
  const Problem& problem = workload.problem;
  if (!flags.schedule.empty()) {
    SACCADE_ASSIGN(const Schedule schedule, schedule_from_flag(flags.schedule));
    SACCADE_TRY(check_schedule(schedule, workload, target));
    return schedule;
  }
  SACCADE_ASSIGN(const Family* const family, choose_family(problem, target, &workload.shape));
  const Shape planned = planning_shape(workload.shape, problem);
  const bool sized = !workload.tables.empty();  // host tables are sized for the shape itself
  const Shape& ranked_shape = sized ? workload.shape : planned;
  for (const RankedSchedule& ranked : rank_candidates(*family, problem, target, ranked_shape, workload.bindings()))
    if (family->legal(problem, target, workload.shape, ranked.schedule).ok()) return ranked.schedule;
  return Status::unsupported(fmt::format("{} has no legal schedule for this problem and shape", family->name));
}

std::string schedule_text(const Schedule& schedule) {
  std::string text;
  for (const auto& [name, value] : schedule.params)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  return text;
}

}  // namespace saccade::cli
