// saccade explain: what prepare would do and why. Compiles and measures nothing.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/workload.h"
#include "runtime/compiler.h"
#include "runtime/ladder.h"

namespace saccade::cli {
namespace {

constexpr std::size_t kShownCandidates = 12;

/// What the cache says of one schedule's binary.
enum class BinaryState : std::uint8_t { cached, absent, unknown };
const char* text_of(BinaryState state) {
  switch (state) {
    case BinaryState::cached: return "in the cache";
    case BinaryState::absent: return "to be compiled";
    case BinaryState::unknown: return "unknown (no compiler)";
  }
  return "";
}

struct Explanation {
  Target target;
  std::vector<FamilyAnswer> families;
  const Family* family = nullptr;  ///< null: none supports the problem
  Shape planned;
  std::vector<RankedSchedule> ranked;
  std::vector<std::optional<std::string>> rejected;  ///< of the shown ones, why they are passed over
  std::optional<cache::Tuned> tuned;
  std::string tuned_layer;
  std::string tuned_fault;  ///< why the row cannot be used
  std::optional<Schedule> choice;
  std::string choice_source;
  BinaryState binary = BinaryState::unknown;
};

BinaryState binary_state(Engine& engine, const Problem& problem, const Target& target, const Schedule& schedule) {
  const std::string source = find_family(schedule.family)->emit(problem, target, schedule);
  if (engine.store().find_binary(pack_binary_key(source, target))) return BinaryState::cached;
  const auto compiler = compiler_for(target.kind);
  if (!compiler.ok()) return BinaryState::unknown;
  return engine.store().find_binary(binary_key(source, target, **compiler)) ? BinaryState::cached : BinaryState::absent;
}

void climb_ladder(Explanation& e, Engine& engine, const Workload& workload, const PrepareOptions& options) {
  cache::Store& store = engine.store();
  Ladder ladder(store);
  const Shape& ranked = options.bindings.tables.empty() ? e.planned : workload.shape;
  const auto step = choose_by_ladder(ladder, store, *e.family, workload.problem, e.target, workload.shape, ranked,
                                     options.bindings, *e.choice);
  if (!step) return;
  e.choice = step->schedule;
  e.choice_source = step->source;
}

/// As the engine chooses, without measuring.
void decide(Explanation& e, Engine& engine, const Workload& workload, const PrepareOptions& options) {
  if (options.schedule) {
    e.choice = options.schedule;
    e.choice_source = "the user's schedule";
  } else if (e.tuned && options.use_cache) {
    const auto schedule = schedule_from_json(e.tuned->schedule);
    const Status usable =
        schedule.ok() ? e.family->legal(workload.problem, e.target, workload.shape, *schedule) : schedule.status();
    e.tuned_fault = usable.message();
    if (usable.ok()) {
      e.choice = *schedule;
      e.choice_source = fmt::format("tuned row in {}", e.tuned_layer.empty() ? "the cache" : e.tuned_layer);
    }
  }
  if (!e.choice && options.tuning != TuningPolicy::off) {
    e.choice_source = fmt::format("a race, policy {}", name_of(options.tuning));
    return;
  }
  for (std::size_t i = 0; !e.choice && i < e.ranked.size(); ++i) {
    const Schedule& schedule = e.ranked[i].schedule;
    const bool passed_over = i < e.rejected.size() && e.rejected[i].has_value();
    if (passed_over || !e.family->legal(workload.problem, e.target, workload.shape, schedule).ok()) continue;
    e.choice = schedule;
    e.choice_source = "cost model";
    if (options.use_cache) climb_ladder(e, engine, workload, options);
  }
  if (e.choice) e.binary = binary_state(engine, workload.problem, e.target, *e.choice);
}

Expected<Explanation> explain(const Options& options, const Workload& workload) {
  Explanation e;
  SACCADE_ASSIGN(e.target, build_target(options.engine));
  SACCADE_ASSIGN(const PrepareOptions prepare, prepare_options(options.engine, workload, TuningPolicy::off));
  e.families = ask_families(workload.problem, e.target, &workload.shape);
  const auto family = choose_family(workload.problem, e.target, &workload.shape);
  if (!family.ok()) return e;
  e.family = *family;
  e.planned = planning_shape(workload.shape, workload.problem);
  const expr::Bindings bindings = workload.bindings();
  e.ranked = rank_candidates(*e.family, workload.problem, e.target,
                             bindings.tables.empty() ? e.planned : workload.shape, bindings);
  SACCADE_ASSIGN(const auto engine, open_engine(options.engine));
  if (prepare.schedule) SACCADE_TRY(check_schedule(*prepare.schedule, workload, e.target));
  e.tuned =
      engine->store().find_tuned(tuned_key(*e.family, workload.problem, workload.shape, e.target), &e.tuned_layer);
  for (std::size_t i = 0; i < std::min(kShownCandidates, e.ranked.size()); ++i) {
    const auto row =
        engine->store().find_rejected(rejected_key(*e.family, workload.problem, e.target, e.ranked[i].schedule));
    e.rejected.push_back(row ? std::optional(row->reason) : std::nullopt);
  }
  decide(e, *engine, workload, prepare);
  return e;
}

Json explanation_json(const Explanation& e, const Workload& workload) {
  Json document = {{"problem", parsed(to_json(workload.problem))},
                   {"shape", json_of(workload.shape, workload.problem)},
                   {"target", json_of(e.target)}};
  for (const FamilyAnswer& answer : e.families) {
    Json entry = {{"family", answer.family->name}, {"supports", answer.status.ok()}};
    if (!answer.status.ok()) entry["reason"] = answer.status.message();
    document["families"].push_back(entry);
  }
  if (!e.family) return document;
  document["planned_for"] = json_of(e.planned, workload.problem);
  document["candidates"] = e.ranked.size();
  for (std::size_t i = 0; i < e.rejected.size(); ++i) {
    Json entry = {{"schedule", parsed(to_json(e.ranked[i].schedule))}, {"cost", json_of(e.ranked[i].cost)}};
    if (e.rejected[i]) entry["rejected"] = *e.rejected[i];
    document["ranked"].push_back(entry);
  }
  document["tuned"] = nullptr;
  if (e.tuned)
    document["tuned"] = {
        {"layer", e.tuned_layer}, {"schedule", parsed(e.tuned->schedule)}, {"provenance", parsed(e.tuned->provenance)}};
  if (!e.tuned_fault.empty()) document["tuned"]["ignored"] = e.tuned_fault;
  document["choice"] = {{"source", e.choice_source}};
  if (e.choice) {
    document["choice"]["schedule"] = parsed(to_json(*e.choice));
    document["choice"]["binary"] = text_of(e.binary);
  }
  return document;
}

Text candidates_text(const Explanation& e) {
  TextTable table({">#", ">predicted", ">matrix", ">exp", ">shared", ">memory", ">prologue", ">waves", "schedule"});
  for (std::size_t i = 0; i < e.rejected.size(); ++i) {
    const Cost& cost = e.ranked[i].cost;
    Text schedule = schedule_text(e.ranked[i].schedule);
    if (e.rejected[i]) schedule += coloured(Colour::red, fmt::format("  rejected: {}", *e.rejected[i]));
    table.add({fmt::format("{}", i + 1), human_time_us(cost.total_us), human_time_us(cost.matrix_us),
               human_time_us(cost.exp_us), human_time_us(cost.shared_us), human_time_us(cost.memory_us),
               human_time_us(cost.prologue_us), fmt::format("{:.0f}%", 100 * cost.wave_efficiency), schedule});
  }
  return table.text();
}

void print_text(const Explanation& e, const Workload& workload) {
  print_line(fmt::format("problem    {}\n           {}", describe(workload), to_json(workload.problem)));
  print_line(fmt::format("target     {} {}", e.target.arch, e.target.name));
  print_line("families");
  for (const FamilyAnswer& answer : e.families)
    print_line(fmt::format("  {:<16} ", answer.family->name) +
               (answer.status.ok() ? coloured(Colour::green, "supports it") : Text(answer.status.message())));
  if (!e.family) return;
  print_line(fmt::format("schedules  {} legal candidates of {}, by predicted time{}", e.ranked.size(), e.family->name,
                         e.ranked.size() > e.rejected.size() ? fmt::format(" (the first {})", e.rejected.size()) : ""));
  print_line(candidates_text(e));
  print_line(
      fmt::format("tuned row  {}", e.tuned ? fmt::format("{} in {}", e.tuned->schedule, e.tuned_layer) : "none"));
  if (!e.tuned_fault.empty()) print_line(fmt::format("           is ignored: {}", e.tuned_fault));
  print_line(fmt::format("choice     {}", e.choice ? schedule_text(*e.choice) : "not known before it is measured"));
  print_line(fmt::format("           from {}", e.choice_source));
  if (e.choice) print_line(fmt::format("binary     {}", text_of(e.binary)));
}

}  // namespace

Expected<int> explain_command(const Options& options) {
  SACCADE_ASSIGN(const Workload workload, workload_from_options(options.problem));
  SACCADE_ASSIGN(const Explanation explanation, explain(options, workload));
  if (options.json) {
    print_json(explanation_json(explanation, workload));
  } else {
    print_text(explanation, workload);
  }
  return explanation.family ? kExitOk : kExitUnsupported;
}

}  // namespace saccade::cli
