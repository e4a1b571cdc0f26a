// saccade tune: measures schedules, shows every candidate, keeps the winner.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/tune.h"
#include "cli/workload.h"
#include "tuner/tune.h"

namespace saccade::cli {
namespace {

/// Order of the table: raced candidates by their ratio, then the rest as they come.
std::vector<std::size_t> display_order(const tuner::TuneReport& report) {
  std::vector<std::size_t> order(report.candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto rank = [&](std::size_t i) {
    const double ratio = report.candidates[i].ratio;
    return ratio > 0 ? ratio : 1e30;
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  return order;
}

Text state_text(const tuner::CandidateReport& candidate) {
  std::string name = name_of(candidate.state);
  std::replace(name.begin(), name.end(), '_', ' ');
  const Colour colour = candidate.state == tuner::CandidateState::winner   ? Colour::green
                        : candidate.state == tuner::CandidateState::failed ? Colour::red
                                                                           : Colour::plain;
  Text text = coloured(colour, name);
  if (candidate.origin == "default") text += ", default";
  if (candidate.state == tuner::CandidateState::failed || candidate.state == tuner::CandidateState::rejected_before)
    text += fmt::format(": {}", candidate.reason.substr(0, candidate.reason.find('\n')));
  return text;
}

Text candidates_text(const tuner::TuneReport& report, bool cuda) {
  std::vector<std::string> header = {">measured", ">to default", ">predicted", ">compile"};
  if (cuda) header.insert(header.end(), {">registers", ">spills"});
  header.insert(header.end(), {"schedule", "state"});
  TextTable table(header);
  for (const std::size_t i : display_order(report)) {
    const tuner::CandidateReport& candidate = report.candidates[i];
    if (candidate.state == tuner::CandidateState::not_tried) continue;
    std::vector<Text> cells = {
        candidate.median_us > 0 ? human_time_us(candidate.median_us) : "-",
        candidate.ratio > 0 ? fmt::format("{:.3f} +- {:.3f}", candidate.ratio, candidate.ratio_error) : "-",
        human_time_us(candidate.predicted_us), fmt::format("{:.0f} ms", candidate.compile_ms)};
    if (cuda) {
      cells.push_back(fmt::format("{}", candidate.registers));
      cells.push_back(human_bytes(static_cast<double>(candidate.spill_bytes)));
    }
    cells.push_back(schedule_text(candidate.schedule));
    cells.push_back(state_text(candidate));
    table.add(std::move(cells));
  }
  return table.text();
}

void print_report(const tuner::TuneReport& report, const Workload& workload, bool cuda, bool kept) {
  print_line(fmt::format("problem    {}", describe(workload)));
  print_line(candidates_text(report, cuda));
  const auto untried = std::count_if(report.candidates.begin(), report.candidates.end(), [](const auto& candidate) {
    return candidate.state == tuner::CandidateState::not_tried;
  });
  if (untried > 0) print_line(fmt::format("{} more were not tried within the budget", untried));
  print_line();
  print_line(fmt::format("winner     {}", schedule_text(report.outcome.schedule)));
  print_line(fmt::format("           {} against {} for the default: {:+.1f}% ({})", human_time_us(report.winner_us),
                         human_time_us(report.default_us), 100 * report.gain,
                         std::isfinite(report.noise)
                             ? fmt::format("noise {:.1f}%, margin {:.1f}%", 100 * report.noise, 100 * report.band)
                             : "too few rounds to know the noise"));
  print_line(fmt::format("           {}", report.reason));
  print_line(fmt::format("took       {} in {} rounds{}", human_time_us(1000 * report.elapsed_ms), report.rounds,
                         report.cancelled  ? "; interrupted, the best so far stands"
                         : report.complete ? ""
                                           : "; the budget ended it"));
  print_line(report.rounds == 0 ? "kept       nowhere (nothing was compared)"
             : kept             ? "kept       in the user cache"
                                : "kept       nowhere (--no-cache)");
}

}  // namespace

Expected<tuner::TuneReport> tune_workload(const Session& session, const Workload& workload, TuningPolicy policy,
                                          bool keep, Progress& progress) {
  const Problem& problem = workload.problem;
  SACCADE_ASSIGN(const Family* const family, choose_family(problem, session.device->target(), &workload.shape));
  const expr::Bindings bindings = workload.bindings();
  // As the engine does: host tables are sized for the call's own lengths.
  const Shape shape = bindings.tables.empty() ? planning_shape(workload.shape, problem) : workload.shape;
  const TuneRequest request{&problem, &shape, &bindings, family, session.device, policy};
  tuner::TuneOptions options;
  options.cancel = &interrupted();
  options.progress = [&](const tuner::TuneProgress& step) {
    const std::string left =
        step.eta_ms > 0 ? fmt::format(", at most {} left", clock_text(step.eta_ms / 1000)) : std::string();
    progress.detail(fmt::format("{} {}/{}{}, best {:.2f}x the default's speed", step.phase, step.done, step.total, left,
                                1 / step.best_ratio));
  };
  SACCADE_ASSIGN(tuner::TuneReport report, tuner::tune(*session.engine, request, options));
  if (keep) {
    tuner::remember(*session.engine, request, report);
    session.engine->store().flush();
  }
  return report;
}

Expected<int> tune_command(const Options& options) {
  SACCADE_ASSIGN(const Workload workload, workload_from_options(options.problem));
  TuningPolicy policy = TuningPolicy::normal;
  if (!options.engine.tuning.empty()) {
    SACCADE_ASSIGN(policy, tuning_policy(options.engine.tuning));
  }
  if (policy == TuningPolicy::off)
    return Status::invalid_argument("tune measures: --tuning is quick, normal or exhaustive");
  if (!options.engine.schedule.empty())
    return Status::invalid_argument("tune chooses the schedule itself: leave --schedule out");
  SACCADE_ASSIGN(const Session session, open_session(options.engine));
  Progress progress("tune", 0, options.progress);
  const bool keep = !options.engine.no_cache;
  SACCADE_ASSIGN(const tuner::TuneReport report, tune_workload(session, workload, policy, keep, progress));
  progress.clear();
  if (options.json) {
    print_json({{"problem", parsed(to_json(workload.problem))},
                {"shape", json_of(workload.shape, workload.problem)},
                {"device", json_of(session.device->target())},
                {"kept", keep && report.rounds > 0},
                {"report", parsed(to_json(report))}});
  } else {
    print_report(report, workload, session.device->target().kind == Target::Kind::cuda, keep);
  }
  return report.cancelled ? kExitInterrupted : kExitOk;
}

}  // namespace saccade::cli
