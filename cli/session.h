// Session: the engine and the device that a command works with, opened as its flags say.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "cli/options.h"
#include "cli/workload.h"
#include "runtime/engine.h"

namespace saccade::cli {

/// "cpu", "cuda" or "cuda:N". `unsupported` when it is well formed but not there.
Expected<std::shared_ptr<const Device>> open_device(const EngineFlags& flags);
Expected<std::shared_ptr<Engine>> open_engine(const EngineFlags& flags, bool finds_packs = true);

/// `io_error` unless there is a user database that can be written.
Status check_writable(cache::Store& store);

struct Session {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<const Device> device;
};
Expected<Session> open_session(const EngineFlags& flags);

/// What to build for: --arch without its device, else the device's target.
Expected<Target> build_target(const EngineFlags& flags);

Expected<TuningPolicy> tuning_policy(const std::string& name);
const char* name_of(TuningPolicy policy);
/// Bindings, schedule, policy and cache use, as the flags say.
Expected<PrepareOptions> prepare_options(const EngineFlags& flags, const Workload& workload,
                                         TuningPolicy default_policy);
/// --schedule: JSON or a JSON file.
Expected<Schedule> schedule_from_flag(const std::string& text);
/// Why the schedule does not build this workload for the target; ok when it does.
Status check_schedule(const Schedule& schedule, const Workload& workload, const Target& target);
/// The flag's schedule, checked, or the cost model's first choice for a target that need not be here.
Expected<Schedule> choose_offline(const EngineFlags& flags, const Workload& workload, const Target& target);

/// "tile_m 128, tile_n 64"
std::string schedule_text(const Schedule& schedule);

}  // namespace saccade::cli
