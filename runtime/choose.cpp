#include "runtime/choose.h"

#include <fmt/format.h>

#include <chrono>

#include "base/log.h"

namespace saccade {
namespace {

Cost predict(const Family& family, const ChooseRequest& request, const Schedule& schedule) {
  return predict_cost(family, request.problem, request.device->target(), request.planned, request.options.bindings,
                      schedule);
}

Status check_legal(const Family& family, const ChooseRequest& request, const Schedule& schedule) {
  if (schedule.family != family.name) {
    return Status::invalid_argument(fmt::format("the schedule is of family {}, not {}", schedule.family, family.name));
  }
  return family.legal(request.problem, request.device->target(), request.shape, schedule);
}

std::vector<std::string> declined_families(const ChooseRequest& request) {
  std::vector<std::string> declined;
  for (const FamilyAnswer& answer : ask_families(request.problem, request.device->target(), &request.shape)) {
    if (!answer.status.ok()) declined.push_back(fmt::format("{}: {}", answer.family->name, answer.status.message()));
  }
  return declined;
}

Expected<Choice> users_choice(const ChooseRequest& request) {
  const Schedule& schedule = *request.options.schedule;
  const Target& target = request.device->target();
  const Family* family = find_family(schedule.family);
  if (family == nullptr || family->target_kind != target.kind) {
    std::string known;
    for (const FamilyAnswer& answer : ask_families(request.problem, target))
      known += fmt::format(" {}", answer.family->name);
    return Status::invalid_argument(fmt::format("the schedule's family \"{}\" does not run on {}; those that do:{}",
                                                schedule.family, target.arch, known));
  }
  SACCADE_TRY(family->supports(request.problem, target));
  SACCADE_TRY(check_legal(*family, request, schedule));
  Choice choice;
  choice.family = family;
  choice.schedule = schedule;
  choice.source = "user";
  choice.cost = predict(*family, request, schedule);
  return choice;
}

/// Fills `choice` from a tuned row. A row that cannot be used is a miss, and one warning.
bool take_tuned(const ChooseRequest& request, const Family& family, Choice& choice) {
  if (!request.options.use_cache) return false;
  std::string layer;
  cache::Store& store = request.engine.store();
  const std::optional<cache::Tuned> row =
      store.find_tuned(tuned_key(family, request.problem, request.shape, request.device->target()), &layer);
  if (!row) return false;
  const Expected<Schedule> schedule = schedule_from_json(row->schedule);
  const Status usable = schedule.ok() ? check_legal(family, request, *schedule) : schedule.status();
  if (!usable.ok()) {
    log::warn_once(fmt::format("a tuned row of {} is ignored: {}", layer, usable.message()));
    return false;
  }
  choice.schedule = *schedule;
  const bool of_user = layer.empty() || layer == "memory" || layer == store.user_path();
  choice.source = of_user ? "tuned (user cache)" : fmt::format("tuned (pack {})", layer);
  choice.cost = predict(family, request, choice.schedule);
  return true;
}

/// Why the request may not measure now, empty when it may.
std::string reason_not_to_measure(const ChooseRequest& request) {
  const Expected<bool> capturing = request.device->is_capturing(request.options.stream);
  if (!capturing.ok()) return fmt::format("not tuned: {}", capturing.status().message());
  return *capturing ? "not tuned: the stream is being captured" : "";
}

/// Fills `choice` by measuring; else says why not in `remark`.
Status take_measured(const ChooseRequest& request, const Family& family, Choice& choice, std::string& remark) {
  if (request.engine.is_frozen()) {
    remark = "not tuned: the engine is frozen";
    return {};
  }
  remark = reason_not_to_measure(request);
  choice.provisional = !remark.empty();
  if (choice.provisional) return {};
  const auto start = std::chrono::steady_clock::now();
  const Expected<TuneOutcome> outcome =
      tune_schedule(request.engine, {&request.problem, &request.planned, &request.options.bindings, &family,
                                     request.device, request.options.tuning, request.options.use_cache});
  choice.tune_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (!outcome.ok() && outcome.status().code() == StatusCode::cancelled) return outcome.status();
  const Status usable = outcome.ok() ? check_legal(family, request, outcome->schedule) : outcome.status();
  if (!usable.ok()) {
    remark = fmt::format("tuning failed: {}", usable.message());
    log::warn_once(remark);
    return {};
  }
  choice.schedule = outcome->schedule;
  choice.source = "tuned (just now)";
  choice.cost = predict(family, request, choice.schedule);
  choice.measured_now = true;
  if (request.options.use_cache) {
    request.engine.store().put_tuned(tuned_key(family, request.problem, request.shape, request.device->target()),
                                     {to_json(outcome->schedule), outcome->provenance},
                                     fmt::format("{} {}", family.name, to_json(request.problem)));
  }
  return {};
}

/// The cheapest legal candidate that was not rejected before.
Status take_ranked(const ChooseRequest& request, const Family& family, const std::string& remark, Choice& choice) {
  const Target& target = request.device->target();
  std::string last = "it has no candidate for this shape";
  for (const RankedSchedule& ranked :
       rank_candidates(family, request.problem, target, request.planned, request.options.bindings)) {
    if (const Status legal = check_legal(family, request, ranked.schedule); !legal.ok()) {
      last = legal.message();
      continue;
    }
    if (request.options.use_cache) {
      const auto rejected =
          request.engine.store().find_rejected(rejected_key(family, request.problem, target, ranked.schedule));
      if (rejected) {
        last = fmt::format("{} was rejected before: {}", to_json(ranked.schedule), rejected->reason);
        choice.declined.push_back(last);
        continue;
      }
    }
    choice.schedule = ranked.schedule;
    choice.cost = ranked.cost;
    choice.source = remark.empty() ? "cost model" : fmt::format("cost model ({})", remark);
    return {};
  }
  return Status::unsupported(
      fmt::format("{} has no usable schedule for this problem and shape: {}", family.name, last));
}

/// Replaces the cost model's choice where tuned rows of other shapes or devices say that another one is faster.
void take_from_ladder(const ChooseRequest& request, const Family& family, const std::string& remark, Choice& choice) {
  if (!request.options.use_cache) return;
  const Target& target = request.device->target();
  const auto step = choose_by_ladder(request.ladder, request.engine.store(), family, request.problem, target,
                                     request.shape, request.planned, request.options.bindings, choice.schedule);
  if (!step) return;
  choice.schedule = step->schedule;
  choice.cost = predict(family, request, choice.schedule);
  choice.source = step->source;
  if (!remark.empty()) choice.source += fmt::format(" ({})", remark);
  log::info(log::Topic::tune,
            fmt::format("{} from {}, {:.1f}% faster than the cost model's choice as far as can be told",
                        to_json(choice.schedule), choice.source, 100 * step->expected_gain));
}

}  // namespace

Expected<Choice> choose_schedule(const ChooseRequest& request) {
  if (request.options.schedule) return users_choice(request);
  const Target& target = request.device->target();
  SACCADE_ASSIGN(const Family* family, choose_family(request.problem, target, &request.shape));
  Choice choice;
  choice.family = family;
  choice.declined = declined_families(request);
  if (take_tuned(request, *family, choice)) return choice;
  std::string remark;
  if (request.options.tuning != TuningPolicy::off) {
    SACCADE_TRY(take_measured(request, *family, choice, remark));
    if (choice.measured_now) return choice;
  }
  SACCADE_TRY(take_ranked(request, *family, remark, choice));
  take_from_ladder(request, *family, remark, choice);
  return choice;
}

}  // namespace saccade
