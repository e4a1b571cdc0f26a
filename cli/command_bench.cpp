// saccade bench: how long the chosen schedule takes, beside the cost model's.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/execution.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/plan_text.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/workload.h"

namespace saccade::cli {
namespace {

struct BenchRow {
  std::string name;
  PlanReport report;
  Timing timing;
};

Json row_json(const BenchRow& row, double flops) {
  const double median = row.timing.median_us();
  return {{"name", row.name},
          {"median_us", median},
          {"best_us", row.timing.best_us()},
          {"gflop_per_s", flops / median / 1e3},
          {"samples_us", row.timing.samples_us},
          {"plan", parsed(to_json(row.report))}};
}

}  // namespace

Expected<int> bench_command(const Options& options) {
  SACCADE_ASSIGN(Workload workload, workload_from_options(options.problem));
  SACCADE_TRY(workload.complete());
  SACCADE_TRY(fill_normal(workload, options.seed));
  count_flops(workload);
  SACCADE_ASSIGN(const Session session, open_session(options.engine));
  SACCADE_ASSIGN(const PrepareOptions chosen, prepare_options(options.engine, workload, TuningPolicy::off));
  SACCADE_ASSIGN(Execution execution, Execution::create(session.device, workload));

  std::vector<BenchRow> rows;
  const auto measure = [&](const std::string& name, const PrepareOptions& prepare) -> Status {
    Progress progress("bench", 0, options.progress);
    progress.step(0, name);
    SACCADE_ASSIGN(const auto plan, session.engine->prepare(session.device, workload.problem, workload.shape, prepare));
    if (!rows.empty() && plan->report().schedule == rows.front().report.schedule) return {};
    SACCADE_ASSIGN(const Timing timing, execution.time(*plan, options.bench.seconds));
    rows.push_back({name, plan->report(), timing});
    return {};
  };
  SACCADE_TRY(measure("chosen", chosen));
  SACCADE_ASSIGN(PrepareOptions plain, prepare_options(options.engine, workload, TuningPolicy::off));
  SACCADE_ASSIGN(const Schedule untuned, choose_offline({}, workload, session.device->target()));
  plain.tuning = TuningPolicy::off;
  plain.schedule = untuned;
  SACCADE_TRY(measure("untuned default", plain));

  if (options.json) {
    Json list = Json::array();
    for (const BenchRow& row : rows) list.push_back(row_json(row, workload.flops));
    print_json({{"problem", parsed(to_json(workload.problem))},
                {"shape", json_of(workload.shape, workload.problem)},
                {"device", json_of(session.device->target())},
                {"flops", workload.flops},
                {"rows", list}});
    return kExitOk;
  }
  print_line(fmt::format("problem    {}", describe(workload)));
  print_line(plan_text(rows.front().report));
  TextTable table({"", ">median", ">best", ">GFLOP/s", ">runs", "schedule"});
  for (const BenchRow& row : rows)
    table.add({row.name, human_time_us(row.timing.median_us()), human_time_us(row.timing.best_us()),
               fmt::format("{:.1f}", workload.flops / row.timing.median_us() / 1e3),
               fmt::format("{}", row.timing.samples_us.size()), schedule_text(row.report.schedule)});
  print_line();
  print_line(table.text());
  if (rows.size() == 1) print_line("The chosen schedule is the cost model's.");
  return kExitOk;
}

}  // namespace saccade::cli
