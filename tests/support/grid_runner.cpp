#include "tests/support/grid_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/together.h"
#include "generator/family.h"
#include "tests/support/call_runner.h"

namespace saccade::test_support {
namespace {

using Clock = std::chrono::steady_clock;

int environment_number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::atoi(text) : otherwise;
}

/// Half-open ranges of cases of the same kernel: the unit of work of a thread.
std::vector<std::pair<std::size_t, std::size_t>> kernel_ranges(const std::vector<GridCase>& cases) {
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (ranges.empty() || cases[ranges.back().first].kernel != cases[i].kernel) ranges.emplace_back(i, i);
    ranges.back().second = i + 1;
  }
  return ranges;
}

/// `count` distinct legal schedules, drawn at random.
std::vector<Schedule> draw_schedules(const AttentionCall& call, const Target& target, int count, std::uint64_t seed) {
  const auto family = choose_family(call.problem, target, &call.shape);
  if (!family.ok()) return {};
  std::vector<Schedule> all = family.value()->candidates(call.problem, target, call.shape);
  Random random(seed);
  std::vector<Schedule> drawn;
  while (static_cast<int>(drawn.size()) < count && !all.empty()) {
    const std::size_t at = static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(all.size()) - 1));
    drawn.push_back(all[at]);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return drawn;
}

class GridRun {
 public:
  GridRun(Engine& engine, const std::vector<GridCase>& cases, const GridRunOptions& options)
      : engine_(engine), cases_(cases), options_(options), ranges_(kernel_ranges(cases)) {
    report_.rows.resize(ranges_.size());
  }

  GridReport run() {
    const auto start = Clock::now();
    work_together(static_cast<std::size_t>(options_.threads), [this] { work(); });
    report_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::erase_if(report_.rows, [](const GridRow& row) { return row.cases == 0; });
    return std::move(report_);
  }

 private:
  void work() {
    const std::size_t step = static_cast<std::size_t>(std::max(1, options_.every));
    for (std::size_t r = step * next_++; r < ranges_.size(); r = step * next_++) {
      for (std::size_t i = ranges_[r].first; i < ranges_[r].second; ++i) {
        if (options_.only < 0 || options_.only == cases_[i].index) run_case(cases_[i], report_.rows[r]);
      }
    }
  }

  void run_case(const GridCase& item, GridRow& row) {
    const AttentionCall call = item.make();
    const Expectation expectation = expect_call(call);
    const auto& device = options_.devices[static_cast<std::size_t>(item.index) % options_.devices.size()];
    if (options_.trace) std::fprintf(stderr, "case %d begins: %s\n", item.index, describe(call).c_str());
    row.rule = item.kernel->label;
    row.problem = to_json(call.problem);
    ++row.cases;
    judge(item, call, expectation, device, {}, row);
    for (const Schedule& schedule : draw_schedules(call, device->target(), options_.schedules, item.seed)) {
      judge(item, call, expectation, device, schedule, row);
    }
    if (options_.trace) std::fprintf(stderr, "case %d ended\n", item.index);
    const std::lock_guard lock(mutex_);
    ++report_.cases;
  }

  void judge(const GridCase& item, const AttentionCall& call, const Expectation& expectation,
             const std::shared_ptr<const Device>& device, const std::optional<Schedule>& schedule, GridRow& row) {
    RunRequest request;
    request.schedule = schedule;
    request.tell_bindings = item.index % 2 == 0;
    const Verdict verdict = judge_call(engine_, device, call, expectation, request);
    const std::lock_guard lock(mutex_);
    ++report_.runs;
    if (verdict.status.code() == StatusCode::unsupported && item.kernel->may_refuse) {
      ++row.refused;
      ++report_.refused;
      return;
    }
    note_schedule(row, verdict);
    note_ratios(row, item.index, verdict.errors);
    if (verdict.pass()) return;
    ++row.failed;
    const std::string ran = schedule ? to_json(*schedule) : to_json(verdict.report.schedule);
    report_.failures.push_back(fmt::format("case {}: {}: {} | schedule {} | seed {} | {}", item.index, item.label(),
                                           verdict.message(), ran, item.seed, describe(call)));
    std::printf("%s\n", report_.failures.back().c_str());
    std::fflush(stdout);
  }

  static void note_schedule(GridRow& row, const Verdict& verdict) {
    if (!verdict.status.ok()) return;
    std::string schedule = to_json(verdict.report.schedule);
    if (std::find(row.schedules.begin(), row.schedules.end(), schedule) == row.schedules.end()) {
      row.schedules.push_back(std::move(schedule));
    }
  }

  static void note_ratios(GridRow& row, int index, const ErrorReport& errors) {
    const double o = errors.o_bound > 0 ? errors.o_error / errors.o_bound : 0;
    const double lse = errors.lse_bound > 0 ? errors.lse_error / errors.lse_bound : 0;
    if (o > row.worst_o) row.worst_o_case = index;
    if (lse > row.worst_lse) row.worst_lse_case = index;
    row.worst_o = std::max(row.worst_o, o);
    row.worst_lse = std::max(row.worst_lse, lse);
  }

  Engine& engine_;
  const std::vector<GridCase>& cases_;
  const GridRunOptions& options_;
  std::vector<std::pair<std::size_t, std::size_t>> ranges_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;
  GridReport report_;
};

}  // namespace

void read_environment(GridRunOptions& options) {
  options.only = environment_number("SACCADE_GRID_ONLY", options.only);
  options.schedules = environment_number("SACCADE_GRID_SCHEDULES", options.schedules);
  options.every = environment_number("SACCADE_GRID_EVERY", options.every);
  options.trace = environment_number("SACCADE_GRID_TRACE", 0) != 0;
}

GridReport run_grid(Engine& engine, const std::vector<GridCase>& cases, const GridRunOptions& options) {
  return GridRun(engine, cases, options).run();
}

std::string summary(const GridReport& report) {
  double worst_o = 0, worst_lse = 0;
  std::size_t schedules = 0;
  for (const GridRow& row : report.rows) {
    worst_o = std::max(worst_o, row.worst_o);
    worst_lse = std::max(worst_lse, row.worst_lse);
    schedules += row.schedules.size();
  }
  return fmt::format(
      "{} cases of {} problems in {:.0f} s: {} runs of {} kernels, {} refused, {} failed; "
      "worst error / bound: o {:.3f}, lse {:.3f}\n",
      report.cases, report.rows.size(), report.seconds, report.runs, schedules, report.refused, report.failures.size(),
      worst_o, worst_lse);
}

}  // namespace saccade::test_support
