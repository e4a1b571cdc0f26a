#include "tuner/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/together.h"
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

/// What a row's tuning needs to stay alive.
struct RowRequest {
  expr::Bindings bindings;  ///< tables are made up by the tuner
  TuneRequest request;

  RowRequest(const SweepRow& row, std::shared_ptr<const Device> device, TuningPolicy policy)
      : request{&row.item.problem, &row.item.shape, &bindings, find_family(row.family), std::move(device), policy} {
    bindings.scalars = row.item.scalars;
  }
  RowRequest(const RowRequest&) = delete;
  RowRequest& operator=(const RowRequest&) = delete;
};

/// Fills the row; gives the report, if there was a race.
std::optional<TuneReport> measure_row(Engine& engine, const RowRequest& wanted, const TuneOptions& tuning,
                                      SweepRow& row) {
  const TuneRequest& request = wanted.request;
  Expected<TuneReport> report = tune(engine, request, tuning);
  if (!report.ok()) {
    // A budget that has no room for the race leaves the row for the next sweep.
    const bool stopped = report.status().code() == StatusCode::cancelled || tuning.budget_ms > 0;
    row.state = stopped ? SweepState::to_measure : SweepState::failed;
    row.note = report.status().message();
    return std::nullopt;
  }
  row.elapsed_ms = report->elapsed_ms;
  const bool cut = tuning.budget_ms > 0 && !report->complete;
  if (report->rounds == 0 || report->cancelled || cut) {  // would pass for a whole race
    row.note = cut ? "cut short by the budget" : report->reason;
    return std::nullopt;
  }
  remember(engine, request, *report);
  engine.store().flush();
  row.state = SweepState::measured;
  row.schedule = report->outcome.schedule;
  row.default_us = report->default_us;
  row.winner_us = report->winner_us;
  row.gain = report->gain;
  row.note = report->reason;
  return std::move(report).value();
}

/// The rows of a sweep, dealt out to its devices.
class Sweep {
 public:
  Sweep(Engine& engine, std::vector<SweepRow>& rows, const SweepOptions& options, std::size_t devices)
      : engine_(engine), rows_(rows), options_(options), compiled_(rows.size()), running_(devices) {
    limits_.cancel = options.cancel;
    end_ms_ = limits_.now_ms() + options.budget_ms;
    total_ = static_cast<int>(std::count_if(rows.begin(), rows.end(), [](const SweepRow& row) { return waits(row); }));
  }

  /// By one thread for each device.
  void run(const std::shared_ptr<const Device>& device) {
    constexpr std::size_t kMostFailures = 3;
    std::vector<SweepRow*> failed;  // one after another
    while (SweepRow* const row = take(*device)) {
      const std::shared_future<void> ready = compile(*row, device);
      if (SweepRow* const after = next_of(*row)) static_cast<void>(compile(*after, device));
      if (ready.valid()) ready.wait();
      measure(device, *row);
      if (row->state != SweepState::failed) failed.clear();
      if (row->state == SweepState::failed) failed.push_back(row);
      if (failed.size() == kMostFailures && retires(*device, failed)) return;
    }
  }

 private:
  static bool waits(const SweepRow& row) { return row.state == SweepState::to_measure; }
  std::size_t index_of(const SweepRow& row) const { return static_cast<std::size_t>(&row - rows_.data()); }

  /// The next row that still waits, once its device has looked whether another process has measured it meanwhile.
  SweepRow* take(const Device& device) {
    const std::lock_guard lock(mutex_);
    for (; next_ < rows_.size(); ++next_) {
      SweepRow& row = rows_[next_];
      if (!waits(row)) continue;
      over_ = limits_.cancelled() || end_ms_ <= limits_.now_ms();
      if (over_) break;
      if (options_.started) options_.started(done_, total_, row);
      plan_row(engine_, device, options_, row);
      if (!waits(row)) {
        ++done_;
        if (options_.finished) options_.finished(row, nullptr);
        continue;
      }
      row.ordinal = device.ordinal();
      ++next_;
      return &row;
    }
    --running_;
    return nullptr;
  }

  /// A device that fails one row after another would use up what others could measure. It leaves, and they get its rows, unless it is
  /// the last: then the rows are what fails.
  bool retires(const Device& device, const std::vector<SweepRow*>& failed) {
    const std::lock_guard lock(mutex_);
    if (running_ < 2) return false;
    --running_;
    log::warn_once(
        fmt::format("device {} failed {} problems one after another and is left out of the sweep; the last: {}",
                    device.ordinal(), failed.size(), failed.back()->note));
    for (SweepRow* const row : failed) {
      row->state = SweepState::to_measure;
      --done_;
      next_ = std::min(next_, index_of(*row));
    }
    return true;
  }

  SweepRow* next_of(const SweepRow& row) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = std::max(next_, index_of(row) + 1); i < rows_.size(); ++i)
      if (waits(rows_[i])) return &rows_[i];
    return nullptr;
  }

  /// Starts to compile the row's candidates; on CPUs that would disturb who times.
  std::shared_future<void> compile(SweepRow& row, const std::shared_ptr<const Device>& device) {
    if (device->target().kind != Target::Kind::cuda) return {};
    const std::lock_guard lock(mutex_);
    std::shared_future<void>& started = compiled_[index_of(row)];
    if (!started.valid()) {
      // Made here: another device may take the row, and look it up again, meanwhile.
      auto wanted = std::make_shared<const RowRequest>(row, device, options_.policy);
      const auto compile = [this, wanted] { compile_candidates(engine_, wanted->request, &over_); };
      try {
        started = std::async(std::launch::async, compile).share();
      } catch (const std::system_error&) {  // no more threads: when it is waited for
        started = std::async(std::launch::deferred, compile).share();
      }
    }
    return started;
  }

  /// Whoever had the turn may have measured the row.
  bool is_known_by_now(const Device& device, SweepRow& row) {
    const std::lock_guard lock(mutex_);
    plan_row(engine_, device, options_, row);
    if (waits(row)) return false;
    ++done_;
    if (options_.finished) options_.finished(row, nullptr);
    return true;
  }

  void measure(const std::shared_ptr<const Device>& device, SweepRow& row) {
    constexpr double kPatienceMs = 60'000;
    const RowRequest wanted(row, device, options_.policy);
    const double budget_ms = rules_of(options_.policy).budget_ms;
    Limits limits = limits_;
    limits.deadline_ms = end_ms_;
    const auto turn = take_turn(engine_, *device, std::min(budget_ms, kPatienceMs), limits);
    if (is_known_by_now(*device, row)) return;
    TuneOptions tuning;
    const double left_ms = std::max(end_ms_ - limits_.now_ms(), 1.0);
    if (left_ms < budget_ms) tuning.budget_ms = left_ms;
    tuning.cancel = options_.cancel;
    tuning.progress = [&](const TuneProgress& progress) {
      const std::lock_guard lock(mutex_);
      if (options_.progress) options_.progress(row, progress);
    };
    SweepRow result = row;  // others look at the state of all rows
    const std::optional<TuneReport> report = measure_row(engine_, wanted, tuning, result);
    const std::lock_guard lock(mutex_);
    row = std::move(result);
    ++done_;
    if (options_.finished) options_.finished(row, report ? &*report : nullptr);
  }

  Engine& engine_;
  std::vector<SweepRow>& rows_;
  const SweepOptions& options_;
  Limits limits_;
  double end_ms_ = 0;
  int total_ = 0;
  std::atomic<bool> over_{false};  ///< by the user's wish or the budget's end

  std::mutex mutex_;  ///< of what follows, the rows' states and the caller's functions
  std::size_t next_ = 0;
  int done_ = 0;
  std::vector<std::shared_future<void>> compiled_;
  std::size_t running_;  ///< devices that still take rows
};

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

void run_sweep(Engine& engine, const std::vector<std::shared_ptr<const Device>>& devices, std::vector<SweepRow>& rows,
               const SweepOptions& options) {
  Sweep sweep(engine, rows, options, devices.size());
  std::atomic<std::size_t> next{0};
  work_together(devices.size(), [&] {
    for (std::size_t i = next++; i < devices.size(); i = next++) sweep.run(devices[i]);
  });
}

}  // namespace saccade::tuner
