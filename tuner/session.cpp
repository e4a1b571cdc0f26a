#include "tuner/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace saccade::tuner {

Session::Session(Runner& runner, CandidatePlan plan, PolicyRules rules, SessionCallbacks callbacks, Limits limits,
                 double start_ms)
    : runner_(runner),
      plan_(std::move(plan)),
      rules_(rules),
      callbacks_(std::move(callbacks)),
      limits_(std::move(limits)),
      start_ms_(start_ms) {
  for (const Candidate& candidate : plan_.candidates) {
    CandidateReport line;
    line.schedule = candidate.schedule;
    line.origin = name_of(candidate.origin);
    line.predicted_us = candidate.cost.total_us;
    line.resources = callbacks_.resources(candidate.schedule);
    report_.candidates.push_back(std::move(line));
  }
}

void Session::report_progress(const char* phase, int done, int total, double eta_ms) {
  if (!callbacks_.progress) return;
  TuneProgress progress;
  progress.phase = phase;
  progress.done = done;
  progress.total = total;
  progress.elapsed_ms = elapsed_ms();
  progress.eta_ms = std::min(eta_ms, std::max(0.0, limits_.deadline_ms - limits_.now_ms()));
  progress.best_ratio = best_ratio_;
  callbacks_.progress(progress);
}

void Session::fail(int candidate, Fault fault, const std::string& reason) {
  CandidateReport& line = report_.candidates[static_cast<std::size_t>(candidate)];
  line.fault = fault;
  line.reason = reason;
  line.state = fault == Fault::interrupted ? CandidateState::not_tried : CandidateState::failed;
  if (is_permanent(fault)) callbacks_.reject(line.schedule, fmt::format("{}: {}", name_of(fault), reason));
  std::erase(field_, candidate);
}

bool Session::add(int candidate, const Limits& limits) {
  CandidateReport& line = report_.candidates[static_cast<std::size_t>(candidate)];
  const AddOutcome outcome = runner_.add(id_of(candidate), line.schedule, line.predicted_us, limits);
  line.compile_ms = outcome.compile_ms;
  line.registers = outcome.registers;
  line.spill_bytes = outcome.spill_bytes;
  line.error = outcome.error;
  line.error_bound = outcome.error_bound;
  if (outcome.fault != Fault::none) {
    fail(candidate, outcome.fault, outcome.reason);
    return false;
  }
  line.fault = Fault::none;
  line.median_us = outcome.estimate_us;
  return true;
}

/// Whether the runs that are left to decide anything fit into the budget; says why not in `unraced_`.
bool Session::has_room_for_a_race(double run_us) {
  const double left_ms = std::max(0.0, limits_.deadline_ms - limits_.now_ms());
  if (run_us / 1000 * (kLeastRuns - 1) <= left_ms) return true;
  unraced_ = fmt::format(
      "{:.3g} s of the budget are left and one run takes {:.3g} s: there is no room for a race, so the "
      "cost model's choice stands",
      left_ms / 1000, run_us / 1e6);
  return false;
}

/// The first of the plan that works is the default. Its compile is not cut short by the budget: without it there is
/// nothing to run at all.
Status Session::add_default() {
  const Limits patient = limits_.with_deadline(std::numeric_limits<double>::infinity());
  for (std::size_t i = 0; i < plan_.candidates.size(); ++i) {
    const int candidate = static_cast<int>(i);
    report_progress("prepare", candidate, static_cast<int>(plan_.candidates.size()), 0);
    if (report_.candidates[i].state == CandidateState::failed) continue;
    if (!add(candidate, patient)) {
      if (limits_.cancelled())
        return Status(StatusCode::cancelled, "tuning was cancelled before anything was measured");
      continue;
    }
    CandidateReport& line = report_.candidates[i];
    if (default_ < 0 && !has_room_for_a_race(line.median_us)) {
      default_ = candidate;
      return Status();
    }
    const AddOutcome control = runner_.add(kControlId, line.schedule, line.predicted_us, patient);
    if (control.fault != Fault::none) {
      fail(candidate, control.fault, control.reason);
      continue;
    }
    if (default_ >= 0) {
      // Ratios to a default that is gone mean nothing.
      for (CandidateReport& other : report_.candidates) other.ratio = other.ratio_error = 0;
      best_ratio_ = 1;
    }
    default_ = candidate;
    std::erase(field_, candidate);
    field_.insert(field_.begin(), candidate);
    return Status();
  }
  const CandidateReport& first = report_.candidates.front();
  return Status(StatusCode::unsupported,
                fmt::format("none of {} schedules works here; the first, {}: {}: {}", report_.candidates.size(),
                            to_json(first.schedule), name_of(first.fault), first.reason));
}

void Session::add_others() {
  const int total = static_cast<int>(plan_.candidates.size());
  const double add_start_ms = limits_.now_ms();
  const double add_deadline_ms = start_ms_ + rules_.add_share * rules_.budget_ms;
  const double sample_ms =
      std::max(report_.candidates[static_cast<std::size_t>(default_)].median_us, rules_.measurement.sample_us) / 1000;
  int added = 0;
  for (int i = 0; i < total; ++i) {
    const double now_ms = limits_.now_ms();
    const double each_ms = added > 0 ? (now_ms - add_start_ms) / added : 0;
    report_progress("compile", i, total, each_ms * (total - i));
    // One that would not be done in time is not begun: its compile would eat the race.
    if (limits_.cancelled() || now_ms + each_ms > add_deadline_ms) break;
    // Nor one that leaves no time to race all of them: with the control, and with itself.
    const double race_ms = kLeastRounds * sample_ms * static_cast<double>(field_.size() + 2);
    if (now_ms + each_ms + race_ms > limits_.deadline_ms) break;
    if (i == default_ || report_.candidates[static_cast<std::size_t>(i)].state == CandidateState::failed) continue;
    if (add(i, limits_)) field_.push_back(i);
    ++added;
  }
}

RaceEntry Session::entry_of(int candidate) const {
  return {id_of(candidate), candidate, report_.candidates[static_cast<std::size_t>(candidate)].resources};
}

RaceResult Session::race(const std::vector<int>& field, const RaceRules& rules, const char* phase) {
  std::vector<RaceEntry> entries;
  for (const int candidate : field) entries.push_back(entry_of(candidate));
  const double begin_ms = limits_.now_ms();
  RaceResult result = run_race(runner_, entries, kControlId, rules, limits_, [&](int round, int live) {
    const double each_ms = (limits_.now_ms() - begin_ms) / round;
    report_progress(phase, round, rules.max_rounds, live > 1 ? each_ms * (rules.max_rounds - round) : 0);
  });
  return result;
}

void Session::note(const RaceResult& result, bool is_final) {
  if (is_final) {
    report_.rounds = result.rounds;
    report_.noise = result.noise;
  }
  for (const RaceResult::Line& line : result.lines) {
    CandidateReport& candidate = report_.candidates[static_cast<std::size_t>(line.entry.order)];
    if (line.fault != Fault::none) {
      fail(line.entry.order, line.fault, line.reason);
      continue;
    }
    if (line.samples_us.empty()) continue;
    candidate.median_us = line.median_us;
    candidate.ratio = line.ratio;
    candidate.ratio_error = line.error;
    candidate.samples = static_cast<int>(line.samples_us.size());
    candidate.state = line.eliminated_round > 0 ? CandidateState::eliminated : CandidateState::measured;
    if (line.eliminated_round > 0) {
      candidate.reason =
          fmt::format("{:.2f} times the default's time after {} rounds", line.ratio, line.eliminated_round);
      std::erase(field_, line.entry.order);
    }
    if (std::isfinite(line.ratio)) best_ratio_ = std::min(best_ratio_, line.ratio);
  }
}

/// Returns whether the race stands. A default that failed in it is replaced by the next candidate that works, and the
/// race is run again.
bool Session::final_race(RaceResult& result) {
  while (true) {
    result = race(field_, rules_.race, "race");
    note(result, true);
    if (!result.default_failed) return true;
    runner_.drop(kControlId);
    if (!add_default().ok()) return false;
  }
}

void Session::screen_batch(const std::vector<int>& batch) {
  std::vector<int> entrants{default_};
  for (const int candidate : batch) {
    if (add(candidate, limits_)) entrants.push_back(candidate);
  }
  if (entrants.size() == 1) return;
  RaceRules rules = rules_.race;
  rules.min_rounds = rules.max_rounds = rules_.screen_rounds;
  const RaceResult result = race(entrants, rules, "screen");
  note(result, false);
  if (std::isfinite(result.noise)) screen_noise_ = std::max(screen_noise_, result.noise);
  const Schedule& standard = report_.candidates[static_cast<std::size_t>(default_)].schedule;
  for (const RaceResult::Line& line : result.lines) {
    if (line.is_default || line.fault != Fault::none) continue;
    runner_.drop(line.entry.id);
    const CandidateReport& candidate = report_.candidates[static_cast<std::size_t>(line.entry.order)];
    const bool settled = !result.interrupted || line.eliminated_round > 0;
    if (settled && std::isfinite(line.ratio)) {
      callbacks_.record(candidate.schedule, standard, {line.ratio, line.error, line.median_us});
    }
  }
}

void Session::screen() {
  const int total = static_cast<int>(plan_.candidates.size());
  const Schedule& standard = report_.candidates[static_cast<std::size_t>(default_)].schedule;
  std::vector<int> open;
  for (int i = 0; i < total; ++i) {
    CandidateReport& line = report_.candidates[static_cast<std::size_t>(i)];
    if (i == default_ || line.state == CandidateState::failed) continue;
    if (const std::optional<Remembered> known = callbacks_.recall(line.schedule, standard)) {
      line.state = CandidateState::remembered;
      line.ratio = known->ratio;
      line.ratio_error = known->error;
      line.median_us = known->median_us;
      best_ratio_ = std::min(best_ratio_, known->ratio);
    } else {
      open.push_back(i);
    }
  }
  const double begin_ms = limits_.now_ms();
  const std::size_t step = static_cast<std::size_t>(rules_.screen_batch);
  for (std::size_t at = 0; at < open.size() && !limits_.stop(); at += step) {
    const std::vector<int> batch(open.begin() + static_cast<std::ptrdiff_t>(at),
                                 open.begin() + static_cast<std::ptrdiff_t>(std::min(at + step, open.size())));
    std::vector<Schedule> upcoming;
    for (const int candidate : batch)
      upcoming.push_back(report_.candidates[static_cast<std::size_t>(candidate)].schedule);
    runner_.prefetch(upcoming);
    screen_batch(batch);
    const double done = static_cast<double>(std::min(at + step, open.size()));
    const double eta_ms = (limits_.now_ms() - begin_ms) / done * (static_cast<double>(open.size()) - done);
    report_progress("screen", static_cast<int>(done), static_cast<int>(open.size()), eta_ms);
    if (report_.candidates[static_cast<std::size_t>(default_)].state == CandidateState::failed && !add_default().ok())
      return;
  }
}

void Session::add_finalists() {
  screen();
  for (const int candidate : pick_finalists()) {
    if (limits_.stop()) break;
    if (add(candidate, limits_)) field_.push_back(candidate);
  }
}

std::vector<int> Session::pick_finalists() const {
  std::vector<int> measured;
  for (std::size_t i = 0; i < report_.candidates.size(); ++i) {
    const CandidateReport& line = report_.candidates[i];
    const bool usable = line.state != CandidateState::failed && line.ratio > 0 && std::isfinite(line.ratio);
    if (static_cast<int>(i) != default_ && usable) measured.push_back(static_cast<int>(i));
  }
  std::stable_sort(measured.begin(), measured.end(), [this](int a, int b) {
    return report_.candidates[static_cast<std::size_t>(a)].ratio <
           report_.candidates[static_cast<std::size_t>(b)].ratio;
  });
  if (static_cast<int>(measured.size()) > rules_.finalists) measured.resize(static_cast<std::size_t>(rules_.finalists));
  // Slower than the default by more than a screening's error: not worth another compile.
  std::erase_if(measured, [this](int i) { return report_.candidates[static_cast<std::size_t>(i)].ratio > 1.05; });
  std::sort(measured.begin(), measured.end());
  return measured;
}

bool Session::confirm(int candidate) {
  if (limits_.stop()) return false;
  RaceRules rules = rules_.race;
  rules.min_rounds = rules.max_rounds = rules_.confirm_rounds;
  const RaceResult result = race({default_, candidate}, rules, "confirm");
  if (result.default_failed || result.lines.back().fault != Fault::none) {
    note(result, false);
    return false;
  }
  // The margin was earned in the race; here it must only show again, beyond this race's own noise.
  report_.confirmed = !result.interrupted && result.lines.back().ratio < 1 - std::min(result.noise, report_.band);
  return report_.confirmed || result.interrupted;
}

/// The measured candidates, from the final race or, when that was not reached, from the screenings. Fewer than three
/// rounds are no measurement: a budget that ended so early leaves the default.
std::vector<Contender> Session::contenders() const {
  std::vector<Contender> result;
  for (std::size_t i = 0; i < report_.candidates.size(); ++i) {
    const CandidateReport& line = report_.candidates[i];
    const int order = static_cast<int>(i);
    if (order == default_) {
      result.push_back({order, true, 1.0, 0.0, line.resources});
    } else if (line.state != CandidateState::failed && line.ratio > 0 && std::isfinite(line.ratio_error)) {
      result.push_back({order, false, line.ratio, line.ratio_error, line.resources});
    }
  }
  return result;
}

void Session::decide_winner(double noise) {
  const std::vector<Contender> field = contenders();
  const Decision decision = decide(field, {.noise = noise, .tie_fraction = rules_.race.tie_fraction});
  report_.band = decision.band;
  report_.reason = unraced_.empty() ? decision.reason : unraced_;
  report_.gain = decision.gain;
  int winner = field[static_cast<std::size_t>(decision.winner)].order;
  const bool time_is_up = limits_.stop();
  if (winner != default_ && !time_is_up && !confirm(winner)) {
    report_.reason = "the fastest of the race did not beat the default again, alone with it";
    winner = default_;
    report_.gain = 0;
  }
  report_.winner_index = winner;
  report_.default_index = default_;
  report_.candidates[static_cast<std::size_t>(winner)].state = CandidateState::winner;
  report_.default_us = report_.candidates[static_cast<std::size_t>(default_)].median_us;
  report_.winner_us = report_.candidates[static_cast<std::size_t>(winner)].median_us;
  report_.outcome.schedule = report_.candidates[static_cast<std::size_t>(winner)].schedule;
}

Expected<TuneReport> Session::run() {
  if (plan_.candidates.empty()) {
    return Status::unsupported(fmt::format("no schedule to try: all {} were rejected before", plan_.rejected.size()));
  }
  if (!rules_.screen) {
    // The default as well: its compile shares the cores, but a cold quick run has no time to wait for it.
    std::vector<Schedule> upcoming;
    for (const Candidate& candidate : plan_.candidates) upcoming.push_back(candidate.schedule);
    runner_.prefetch(upcoming);
  }
  SACCADE_TRY(add_default());
  RaceResult result;
  if (unraced_.empty()) {
    rules_.screen ? add_finalists() : add_others();
    if (!final_race(result)) return Status::unsupported("every schedule failed while it was timed");
  }
  const bool raced = unraced_.empty() && !result.lines.front().samples_us.empty();
  if (!raced && limits_.cancelled() && contenders().size() == 1) {
    return Status(StatusCode::cancelled, "tuning was cancelled before anything was measured");
  }
  decide_winner(raced ? result.noise : screen_noise_);
  for (const RejectedCandidate& rejected : plan_.rejected) {
    CandidateReport line;
    line.schedule = rejected.schedule;
    line.state = CandidateState::rejected_before;
    line.reason = rejected.reason;
    line.predicted_us = rejected.cost.total_us;
    line.resources = callbacks_.resources(rejected.schedule);
    report_.candidates.push_back(std::move(line));
  }
  report_.cancelled = limits_.cancelled();
  report_.complete = unraced_.empty() && !result.interrupted && !report_.cancelled &&
                     std::none_of(report_.candidates.begin(), report_.candidates.end(),
                                  [](const CandidateReport& c) { return c.state == CandidateState::not_tried; });
  report_.elapsed_ms = elapsed_ms();
  return report_;
}

}  // namespace saccade::tuner
