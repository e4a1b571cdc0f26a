// What the cost model and the ladder, as they are now, would choose for the problems of a sweep, against what its races measured. No
// device is needed: the log holds the times of all candidates.
//
//   replay LOG... > file.json        (LOG: of `saccade sweep --log`)
//
// then: the cost model's first choice when the sweep was run. model: its first choice now. ladder: with the winners of the log's other
// problems as tuned rows. nearest: the winner of the nearest of those, whatever the model says. Regrets are relative to the fastest
// candidate of the race; a choice that was not raced has none. Each part of the summary is over the problems that have all of its regrets.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/profile_cases.h"
#include "runtime/engine.h"
#include "runtime/ladder.h"

namespace saccade::bench {
namespace {

using nlohmann::json;

struct Race {
  std::string name;
  Problem problem;
  Shape shape;
  Target target;
  expr::Bindings bindings;
  const Family* family = nullptr;
  std::vector<std::pair<Schedule, double>> ratios;  ///< time over the default's
  double best = 1;
  json provenance;

  std::optional<double> ratio_of(const Schedule& schedule) const {
    for (const auto& [raced, ratio] : ratios)
      if (raced == schedule) return ratio;
    return std::nullopt;
  }
};

Expected<Target> target_of(const json& device) {
  SACCADE_ASSIGN(Target target, cuda_target(device.at("arch").get<std::string>()));
  target.name = device.at("name").get<std::string>();
  target.sm_count = device.at("sm_count").get<int>();
  target.shared_bytes_per_block = device.at("shared_bytes_per_block").get<int>();
  target.clock_mhz = device.at("clock_mhz").get<int>();
  target.l2_bytes = device.at("l2_bytes").get<std::int64_t>();
  target.memory_gb_per_s = device.at("memory_gb_per_s").get<double>();
  return target;
}

/// As the tuner writes it, of what the ladder reads.
json provenance_of(const json& report, const std::vector<std::pair<Schedule, double>>& ratios, const Schedule& winner) {
  constexpr std::size_t kKept = 4;
  auto sorted = ratios;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  json next = json::array();
  for (const auto& [schedule, ratio] : sorted)
    if (!(schedule == winner) && next.size() < kKept)
      next.push_back({{"schedule", json::parse(to_json(schedule))}, {"ratio_to_default", ratio}});
  const json& standard = report.at("candidates").at(report.at("default_index").get<std::size_t>()).at("schedule");
  return {{"default", standard}, {"gain", report.at("gain")}, {"band", report.at("band")}, {"runners_up", next}};
}

Expected<Race> race_of(const json& line) {
  Race race;
  SACCADE_ASSIGN(race.problem, problem_from_json(line.at("problem").dump()));
  SACCADE_ASSIGN(race.shape, shape_from_json(line.at("shape").dump()));
  SACCADE_ASSIGN(race.target, target_of(line.at("device")));
  SACCADE_ASSIGN(race.family, choose_family(race.problem, race.target, &race.shape));
  if (line.contains("scalars"))
    for (const auto& scalar : race.problem.declarations.scalars)
      race.bindings.scalars.push_back(line.at("scalars").at(scalar.name).get<double>());
  race.name = case_name(line.at("label").get<std::string>(), race.shape);
  const json& report = line.at("report");
  for (const json& candidate : report.at("candidates")) {
    if (!candidate.contains("ratio_to_default")) continue;
    SACCADE_ASSIGN(const Schedule schedule, schedule_from_json(candidate.at("schedule").dump()));
    race.ratios.emplace_back(schedule, candidate.at("ratio_to_default").get<double>());
    race.best = std::min(race.best, race.ratios.back().second);
  }
  SACCADE_ASSIGN(const Schedule winner, schedule_from_json(report.at("schedule").dump()));
  race.provenance = provenance_of(report, race.ratios, winner);
  race.provenance["schedule"] = json::parse(to_json(winner));
  return race;
}

Expected<std::vector<Race>> races_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Status::not_found(path + ": cannot be read");
  std::vector<Race> races;
  for (std::string text; std::getline(file, text);) {
    try {
      SACCADE_ASSIGN(Race race, race_of(json::parse(text)));
      races.push_back(std::move(race));
    } catch (const json::exception& error) {
      return Status::invalid_argument(fmt::format("{}: line {}: {}", path, races.size() + 1, error.what()));
    }
  }
  return races;
}

Schedule first_choice(const Race& race) {
  for (const RankedSchedule& ranked :
       rank_candidates(*race.family, race.problem, race.target, race.shape, race.bindings))
    if (race.family->legal(race.problem, race.target, race.shape, ranked.schedule).ok()) return ranked.schedule;
  return {};
}

json row_of(const Race& race, Ladder& ladder) {
  json row{{"problem", race.name}};
  const auto note = [&](const char* name, const Schedule& schedule) {
    row[fmt::format("{}_schedule", name)] = json::parse(to_json(schedule));
    if (const auto ratio = race.ratio_of(schedule)) row[name] = *ratio / race.best - 1;
  };
  const Schedule first = first_choice(race);
  note("then", *schedule_from_json(race.provenance["default"].dump()));
  note("model", first);
  std::vector<Evidence> evidence = ladder.evidence_for(*race.family, race.problem, race.target, race.shape);
  std::erase_if(evidence, [](const Evidence& each) { return each.distance == 0 && !each.is_sibling; });
  if (evidence.empty()) return row;
  const auto is_usable = [&](const Schedule& s) {
    return race.family->legal(race.problem, race.target, race.shape, s).ok();
  };
  const auto step =
      climb(*race.family, race.problem, race.target, race.shape, race.bindings, first, evidence, is_usable);
  note("ladder", step ? step->schedule : first);
  const Schedule& nearest = evidence.front().measured.front().first;
  if (is_usable(nearest)) note("nearest", nearest);
  return row;
}

/// Of the rows that have all of `names`.
json summary_of(const json& rows, const std::vector<std::string>& names) {
  json summary;
  for (const std::string& name : names) {
    double log_sum = 0, worst = 0;
    int count = 0, over_three_percent = 0;
    for (const json& row : rows) {
      if (!std::all_of(names.begin(), names.end(), [&](const std::string& each) { return row.contains(each); }))
        continue;
      const double regret = row[name].get<double>();
      log_sum += std::log1p(regret);
      worst = std::max(worst, regret);
      over_three_percent += regret > 0.03 ? 1 : 0;
      ++count;
    }
    summary[name] = {{"geomean", count > 0 ? std::expm1(log_sum / count) : 0},
                     {"worst", worst},
                     {"over_3_percent", over_three_percent},
                     {"problems", count}};
  }
  return summary;
}

int run(int count, char** paths) {
  EngineOptions options;
  options.cache.memory_only = true;
  options.cache.finds_packs = false;
  const auto engine = Engine::create(options);
  if (!engine.ok()) {
    fmt::print(stderr, "replay: {}\n", engine.status().message());
    return 1;
  }
  std::vector<Race> races;
  for (int i = 0; i < count; ++i) {
    auto read = races_of(paths[i]);
    if (!read.ok()) {
      fmt::print(stderr, "replay: {}\n", read.status().message());
      return 1;
    }
    std::move(read->begin(), read->end(), std::back_inserter(races));
  }
  for (const Race& race : races)
    (*engine)->store().put_tuned(tuned_key(*race.family, race.problem, race.shape, race.target),
                                 {race.provenance["schedule"].dump(), race.provenance.dump()}, race.name);
  Ladder ladder((*engine)->store());
  json rows = json::array();
  for (const Race& race : races) rows.push_back(row_of(race, ladder));
  json logs = json::array();
  for (int i = 0; i < count; ++i) logs.push_back(paths[i]);
  const json summary{{"then", summary_of(rows, {"then", "model"})},
                     {"ladder", summary_of(rows, {"model", "ladder"})},
                     {"nearest", summary_of(rows, {"model", "ladder", "nearest"})}};
  fmt::print(stderr, "{}\n", summary.dump(1));
  fmt::print("{}\n", json{{"logs", logs}, {"summary", summary}, {"rows", rows}}.dump(1));
  return 0;
}

}  // namespace
}  // namespace saccade::bench

int main(int count, char** arguments) {
  if (count > 1) return saccade::bench::run(count - 1, arguments + 1);
  std::fputs("usage: replay LOG... > file.json\n", stderr);
  return 2;
}
