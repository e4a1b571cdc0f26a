#include "tuner/sweep.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "tuner/limits.h"
#include "tuner/report.h"
#include "tuner/session.h"

namespace saccade::tuner {
namespace {

/// The policy that a tuned row was measured with; nothing when it does not say.
std::optional<TuningPolicy> policy_of(const cache::Tuned& row) {
  const nlohmann::json provenance = nlohmann::json::parse(row.provenance, nullptr, false);
  if (!provenance.is_object() || !provenance.contains("policy")) return std::nullopt;
  for (const TuningPolicy policy : {TuningPolicy::quick, TuningPolicy::normal, TuningPolicy::exhaustive}) {
    if (provenance["policy"] == name_of(policy)) return policy;
  }
  return std::nullopt;
}

void plan_row(Engine& engine, const Device& device, const SweepOptions& options, SweepRow& row) {
  const SweepCase& item = row.item;
  const Expected<const Family*> family = choose_family(item.problem, device.target(), &item.shape);
  if (!family.ok()) {
    row.state = SweepState::unsupported;
    row.note = family.status().message();
    return;
  }
  row.family = (*family)->name;
  if (options.again) return;
  const auto known = engine.store().find_tuned(tuned_key(**family, item.problem, item.shape, device.target()));
  if (!known) return;
  const std::optional<TuningPolicy> policy = policy_of(*known);
  const Expected<Schedule> schedule = schedule_from_json(known->schedule);
  const bool usable = schedule.ok() && (*family)->legal(item.problem, device.target(), item.shape, *schedule).ok();
  if (usable && policy && *policy >= options.policy) row.state = SweepState::known;
}

void measure_row(Engine& engine, const std::shared_ptr<const Device>& device, const SweepOptions& options,
                 double left_ms, SweepRow& row) {
  expr::Bindings bindings;  // tables are made up by the tuner
  bindings.scalars = row.item.scalars;
  const TuneRequest request{&row.item.problem,       &row.item.shape, &bindings,
                            find_family(row.family), device,          options.policy};
  TuneOptions tuning;
  const double budget_ms = rules_of(options.policy).budget_ms;
  if (left_ms < budget_ms) tuning.budget_ms = left_ms;
  tuning.cancel = options.cancel;
  tuning.progress = options.progress;
  const Expected<TuneReport> report = tune(engine, request, tuning);
  if (!report.ok()) {
    const bool stopped = report.status().code() == StatusCode::cancelled;
    row.state = stopped ? SweepState::to_measure : SweepState::failed;
    if (!stopped) row.note = report.status().message();
    return;
  }
  row.elapsed_ms = report->elapsed_ms;
  const bool cut = tuning.budget_ms > 0 && !report->complete;
  if (report->rounds == 0 || report->cancelled || cut) {  // would pass for a whole race
    row.note = cut ? "cut short by the budget" : report->reason;
    return;
  }
  remember(engine, request, *report);
  engine.store().flush();
  row.state = SweepState::measured;
  row.schedule = report->outcome.schedule;
  row.default_us = report->default_us;
  row.winner_us = report->winner_us;
  row.gain = report->gain;
  row.note = report->reason;
}

}  // namespace

const char* name_of(SweepState state) {
  switch (state) {
    case SweepState::to_measure: return "to measure";
    case SweepState::known: return "known";
    case SweepState::unsupported: return "unsupported";
    case SweepState::measured: return "measured";
    case SweepState::failed: return "failed";
  }
  return "unknown";
}

std::vector<SweepRow> plan_sweep(Engine& engine, const std::shared_ptr<const Device>& device,
                                 const std::vector<SweepCase>& cases, const SweepOptions& options) {
  std::vector<SweepRow> rows;
  std::set<std::string> keys;
  for (const SweepCase& item : cases) {
    SweepRow row;
    row.item = item;
    plan_row(engine, *device, options, row);
    const Family* const family = row.family.empty() ? nullptr : find_family(row.family);
    // Shapes of as many heads and sequences together share a key.
    if (family != nullptr && !keys.insert(tuned_key(*family, item.problem, item.shape, device->target())).second)
      continue;
    rows.push_back(std::move(row));
  }
  return rows;
}

void run_sweep(Engine& engine, const std::shared_ptr<const Device>& device, std::vector<SweepRow>& rows,
               const SweepOptions& options) {
  Limits limits;
  limits.cancel = options.cancel;
  const double end_ms = limits.now_ms() + options.budget_ms;
  const auto waits = [](const SweepRow& row) { return row.state == SweepState::to_measure; };
  const int total = static_cast<int>(std::count_if(rows.begin(), rows.end(), waits));
  int index = 0;
  for (SweepRow& row : rows) {
    if (!waits(row)) continue;
    const double left_ms = end_ms - limits.now_ms();
    if (limits.cancelled() || left_ms <= 0) return;
    if (options.started) options.started(index, total, row);
    ++index;
    plan_row(engine, *device, options, row);  // another process may have measured it meanwhile
    if (!waits(row)) continue;
    measure_row(engine, device, options, left_ms, row);
  }
}

}  // namespace saccade::tuner
