// The cost model, the race and the ladder against exhaustive search: for each problem of a profile, every legal schedule is compiled,
// checked and timed. Against the best stand the model's first choice, the best of its top 16, what a normal race picks, and what the
// ladder chooses from the rows of the other problems (and, with --sms, from the rows that the whole GPU left in the same cache).
//
//   regret --device cpu|cuda[:N] --profile FILE [--sms COUNT] [--only FIRST-LAST] [--cache DIR] [--threads N] [--commit HASH]
//     [--race-only quick|normal] > file.json
//
// --sms: a part of the GPU, as a sibling of the same architecture with fewer SMs. With --race-only nothing exhaustive is run: the
// rows say how long a race takes and how far it got. Progress goes to standard error. An interrupted run is resumed by the same
// command with the same --cache.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/profile_cases.h"
#include "runtime/device_name.h"
#include "runtime/engine.h"
#include "runtime/ladder.h"
#include "tuner/session.h"
#include "tuner/tune.h"

namespace saccade::bench {
namespace {

using nlohmann::json;

std::atomic<bool> cancelled{false};

struct Options {
  bool is_cuda = false;
  int ordinal = 0;
  int sms = 0;
  int threads = 0;
  int first = 1, last = 1000;
  std::optional<TuningPolicy> race_only;
  std::string profile, cache, commit, command;
};

int usage() {
  std::fputs(
      "usage: regret --device cpu|cuda[:N] --profile FILE [--sms COUNT] [--only FIRST-LAST] [--cache DIR] [--threads "
      "N] "
      "[--commit HASH] [--race-only quick|normal]\n",
      stderr);
  return 2;
}

bool parse(int count, char** arguments, Options& options) {
  bool has_device = false;
  for (int i = 0; i < count; ++i) options.command += (i == 0 ? "" : " ") + std::string(arguments[i]);
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (i + 1 == count) return false;
    const std::string value = arguments[++i];
    if (name == "--device") {
      const Expected<DeviceName> device = parse_device_name(value);
      if (!device.ok()) return false;
      has_device = true;
      options.is_cuda = device->kind == Target::Kind::cuda;
      options.ordinal = device->ordinal;
    } else if (name == "--only") {
      if (std::sscanf(value.c_str(), "%d-%d", &options.first, &options.last) != 2) return false;
    } else if (name == "--profile") {
      options.profile = value;
    } else if (name == "--sms") {
      options.sms = std::atoi(value.c_str());
    } else if (name == "--cache") {
      options.cache = value;
    } else if (name == "--threads") {
      options.threads = std::atoi(value.c_str());
    } else if (name == "--commit") {
      options.commit = value;
    } else if (name == "--race-only" && (value == "quick" || value == "normal")) {
      options.race_only = value == "quick" ? TuningPolicy::quick : TuningPolicy::normal;
    } else {
      return false;
    }
  }
  return has_device && !options.profile.empty() && (options.is_cuda || options.sms == 0);
}

/// A problem of the profile, with what the tuner needs beside it.
struct RegretProblem {
  explicit RegretProblem(tuner::SweepCase given) : item(std::move(given)) {
    bindings.scalars = item.scalars;
    name = case_name(item.label, item.shape);
  }
  tuner::SweepCase item;
  expr::Bindings bindings;  ///< scalars; tables are made up by the tuner
  std::string name;
};

Expected<std::vector<RegretProblem>> problems_of(const Options& options) {
  SACCADE_ASSIGN(const auto cases, read_profile_file(options.profile));
  std::vector<RegretProblem> problems;
  int number = 0;
  for (const tuner::SweepCase& item : tuner::distinct_cases(cases))
    if (++number; number >= options.first && number <= options.last) problems.emplace_back(item);
  return problems;
}

/// Ratio to the default of the fastest of `lines` for which `counts` holds.
template <class F>
double best_ratio(const tuner::TuneReport& report, F counts) {
  double best = 1;
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const tuner::CandidateReport& line = report.candidates[i];
    if (line.ratio > 0 && std::isfinite(line.ratio) && counts(i, line)) best = std::min(best, line.ratio);
  }
  return best;
}

/// The schedules that a normal race would compile, whatever the store says of them.
std::vector<Schedule> normal_plan(const tuner::TuneReport& exhaustive) {
  std::vector<RankedSchedule> ranked;
  for (const tuner::CandidateReport& line : exhaustive.candidates) {
    Cost cost;
    cost.total_us = line.predicted_us;
    ranked.push_back({line.schedule, cost});
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.cost.total_us < b.cost.total_us; });
  const auto known_bad = [&](const Schedule& schedule) -> std::optional<std::string> {
    for (const tuner::CandidateReport& line : exhaustive.candidates) {
      const bool bad =
          line.state == tuner::CandidateState::failed || line.state == tuner::CandidateState::rejected_before;
      if (line.schedule == schedule && bad) return line.reason;
    }
    return std::nullopt;
  };
  std::vector<Schedule> result;
  const tuner::PolicyRules rules = tuner::rules_of(TuningPolicy::normal);
  for (const tuner::Candidate& candidate : tuner::plan_candidates(ranked, rules.selection, known_bad).candidates) {
    result.push_back(candidate.schedule);
  }
  return result;
}

json row_of(const RegretProblem& problem, const tuner::TuneReport& exhaustive) {
  const double best = best_ratio(exhaustive, [](auto, const auto&) { return true; });
  const std::vector<Schedule> top = normal_plan(exhaustive);
  const double top_best = best_ratio(exhaustive, [&](auto, const tuner::CandidateReport& line) {
    return std::find(top.begin(), top.end(), line.schedule) != top.end();
  });
  int measured = 0;
  json fastest = json::array(), not_measured = json::array();
  std::vector<const tuner::CandidateReport*> lines;
  for (const tuner::CandidateReport& line : exhaustive.candidates) {
    if (static_cast<int>(&line - exhaustive.candidates.data()) != exhaustive.default_index && !(line.ratio > 0)) {
      not_measured.push_back({{"schedule", json::parse(to_json(line.schedule))},
                              {"state", name_of(line.state)},
                              {"fault", name_of(line.fault)},
                              {"reason", line.reason}});
      continue;
    }
    ++measured;
    lines.push_back(&line);
  }
  std::stable_sort(lines.begin(), lines.end(), [](const auto* a, const auto* b) { return a->ratio < b->ratio; });
  for (std::size_t i = 0; i < lines.size() && i < 5; ++i) {
    fastest.push_back({{"schedule", json::parse(to_json(lines[i]->schedule))},
                       {"ratio_to_first", lines[i]->ratio},
                       {"us", lines[i]->median_us},
                       {"predicted_us", lines[i]->predicted_us}});
  }
  const tuner::CandidateReport& first = exhaustive.candidates[static_cast<std::size_t>(exhaustive.default_index)];
  return {{"problem", problem.name},
          {"candidates", exhaustive.candidates.size()},
          {"measured", measured},
          {"first", json::parse(to_json(first.schedule))},
          {"first_us", exhaustive.default_us},
          {"first_predicted_us", first.predicted_us},
          {"best_us", exhaustive.default_us * best},
          {"noise", exhaustive.noise},
          {"first_regret", 1 / best - 1},
          {"top16_regret", top_best / best - 1},
          {"top16_size", top.size()},
          {"fastest", fastest},
          {"not_measured", not_measured},
          {"exhaustive_ms", exhaustive.elapsed_ms}};
}

void add_race(json& row, const tuner::TuneReport& exhaustive, const tuner::TuneReport& race, double best) {
  for (const tuner::CandidateReport& line : exhaustive.candidates) {
    if (line.schedule == race.outcome.schedule && line.ratio > 0) row["race_regret"] = line.ratio / best - 1;
  }
  row["race_winner"] = json::parse(to_json(race.outcome.schedule));
  row["race_gain"] = race.gain;
  row["race_ms"] = race.elapsed_ms;
  row["race_complete"] = race.complete;
}

json summary_of(const json& rows) {
  json result;
  for (const char* field :
       {"first_regret", "top16_regret", "race_regret", "ladder_regret", "nearest_regret", "sibling_regret"}) {
    double log_sum = 0, worst = 0;
    int count = 0;
    for (const json& row : rows) {
      if (!row.contains(field)) continue;
      const double ratio = 1 + row[field].get<double>();
      log_sum += std::log(ratio);
      worst = std::max(worst, ratio - 1);
      ++count;
    }
    if (count > 0) result[field] = {{"geomean", std::exp(log_sum / count) - 1}, {"worst", worst}, {"problems", count}};
  }
  return result;
}

/// A problem with its exhaustive search, from which every choice is looked up.
struct Searched {
  const RegretProblem* problem;
  tuner::TuneReport exhaustive;
  double best;
};

class Regret {
 public:
  Regret(Engine& engine, std::shared_ptr<const Device> device) : engine_(engine), device_(std::move(device)) {}

  json exhaustive_row(const RegretProblem& problem, std::vector<Searched>& searched) const {
    const auto exhaustive = tune(problem, TuningPolicy::exhaustive);
    if (!exhaustive.ok()) return {{"problem", problem.name}, {"error", exhaustive.status().message()}};
    json row = row_of(problem, *exhaustive);
    row["complete"] = exhaustive->complete;
    const double best = best_ratio(*exhaustive, [](auto, const auto&) { return true; });
    if (!cancelled) {
      const auto race = tune(problem, TuningPolicy::normal);
      if (race.ok()) {
        add_race(row, *exhaustive, *race, best);
        tuner::remember(engine_, *request_of(problem, TuningPolicy::normal), *race);
      }
    }
    fmt::print(stderr, "\r{:<44} first {:9.1f} us, regret {:6.2f}%, top 16 {:6.2f}%, {} of {} measured\n", problem.name,
               exhaustive->default_us, 100 * row["first_regret"].get<double>(), 100 * row["top16_regret"].get<double>(),
               row["measured"].get<int>(), row["candidates"].get<int>());
    searched.push_back({&problem, *exhaustive, best});
    return row;
  }

  json race_row(const RegretProblem& problem, TuningPolicy policy) const {
    const auto race = tune(problem, policy);
    if (!race.ok()) return {{"problem", problem.name}, {"error", race.status().message()}};
    const auto measured = std::count_if(race->candidates.begin(), race->candidates.end(),
                                        [](const tuner::CandidateReport& line) { return line.ratio > 0; });
    fmt::print(stderr, "\r{:<44} {:6.0f} ms, {} of {} measured in {} rounds, gain {:.2f}%\n", problem.name,
               race->elapsed_ms, measured, race->candidates.size(), race->rounds, 100 * race->gain);
    return {{"problem", problem.name},
            {"elapsed_ms", race->elapsed_ms},
            {"measured", measured},
            {"candidates", race->candidates.size()},
            {"rounds", race->rounds},
            {"noise", race->noise},
            {"gain", race->gain},
            {"complete", race->complete},
            {"default_us", race->default_us},
            {"winner", json::parse(to_json(race->outcome.schedule))}};
  }

  /// What the rows of the other shapes, and those of other devices, would make the ladder choose, and what the nearest row's winner
  /// would cost without its guard.
  void add_ladder(json& row, const Searched& searched) const {
    const tuner::SweepCase& item = searched.problem->item;
    const auto family = choose_family(item.problem, device_->target(), &item.shape);
    if (!family.ok()) return;
    Ladder ladder(engine_.store());
    std::vector<Evidence> shapes, siblings;
    for (Evidence& each : ladder.evidence_for(**family, item.problem, device_->target(), item.shape)) {
      if (each.is_sibling) {
        siblings.push_back(std::move(each));
      } else if (each.distance > 0) {
        shapes.push_back(std::move(each));
      }
    }
    const auto& first = searched.exhaustive.candidates[static_cast<std::size_t>(searched.exhaustive.default_index)];
    const auto chosen = [&](const std::vector<Evidence>& evidence) {
      const auto step = climb(**family, item.problem, device_->target(), item.shape, searched.problem->bindings,
                              first.schedule, evidence, [&](const Schedule& s) { return ratio_of(searched, s) > 0; });
      return step ? step->schedule : first.schedule;
    };
    const auto note = [&](const char* name, const Schedule& schedule) {
      if (const double ratio = ratio_of(searched, schedule); ratio > 0) row[name] = ratio / searched.best - 1;
    };
    if (!shapes.empty()) {
      note("ladder_regret", chosen(shapes));
      note("nearest_regret", shapes.front().measured.front().first);
    }
    if (!siblings.empty()) {
      note("sibling_regret", chosen(siblings));
      note("sibling_nearest_regret", siblings.front().measured.front().first);
    }
  }

  void compile(const RegretProblem& problem) const {
    const auto request = request_of(problem, TuningPolicy::exhaustive);
    if (request.ok()) tuner::compile_candidates(engine_, *request, &cancelled, tuner::kEveryCandidate);
  }

 private:
  Expected<TuneRequest> request_of(const RegretProblem& problem, TuningPolicy policy) const {
    const tuner::SweepCase& item = problem.item;
    SACCADE_ASSIGN(const Family* family, choose_family(item.problem, device_->target(), &item.shape));
    return TuneRequest{&item.problem, &item.shape, &problem.bindings, family, device_, policy};
  }

  Expected<tuner::TuneReport> tune(const RegretProblem& problem, TuningPolicy policy) const {
    SACCADE_ASSIGN(const TuneRequest request, request_of(problem, policy));
    tuner::TuneOptions options;
    options.cancel = &cancelled;
    options.progress = [&](const tuner::TuneProgress& p) {
      std::fprintf(stderr, "\r%-44s %-8s %4d/%-4d  %5.1f s, best ratio %.3f   ", problem.name.c_str(), p.phase, p.done,
                   p.total, p.elapsed_ms / 1000, p.best_ratio);
    };
    return tuner::tune(engine_, request, options);
  }

  /// Of a schedule to the default; 0: it was not measured.
  static double ratio_of(const Searched& searched, const Schedule& schedule) {
    for (const tuner::CandidateReport& line : searched.exhaustive.candidates) {
      if (!(line.schedule == schedule)) continue;
      const bool is_default =
          static_cast<int>(&line - searched.exhaustive.candidates.data()) == searched.exhaustive.default_index;
      return is_default ? 1 : std::isfinite(line.ratio) ? line.ratio : 0;
    }
    return 0;
  }

  Engine& engine_;
  std::shared_ptr<const Device> device_;
};

json document_of(const Options& options, const Target& target, json rows) {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const json machine{{"device", target.name},
                     {"arch", target.arch},
                     {"driver", cuda_driver_version()},
                     {"cores", target.cores},
                     {"sm_count", target.sm_count}};
  const json summary = summary_of(rows);
  return {{"command", options.command}, {"commit", options.commit},
          {"machine", machine},         {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
          {"rows", std::move(rows)},    {"summary", summary}};
}

int run(const Options& options) {
  EngineOptions engine_options;
  engine_options.cache.directory = options.cache;
  engine_options.cache.finds_packs = false;  // the ladder is to hear of the other problems alone
  engine_options.cpu_threads = options.threads;
  const Expected<std::shared_ptr<Engine>> engine = Engine::create(engine_options);
  const Expected<std::shared_ptr<const Device>> device = !options.is_cuda ? cpu_device(options.threads)
                                                         : options.sms > 0
                                                             ? cuda_partition(options.ordinal, options.sms)
                                                             : cuda_device(options.ordinal);
  const Expected<std::vector<RegretProblem>> problems = problems_of(options);
  for (const Status& status : {engine.status(), device.status(), problems.status()}) {
    if (status.ok()) continue;
    fmt::print(stderr, "regret: {}\n", status.message());
    return 1;
  }
  const Regret regret(**engine, *device);
  json rows = json::array();
  std::vector<Searched> searched;
  for (const RegretProblem& problem : *problems) {
    if (cancelled) break;
    if (options.is_cuda && !options.race_only) regret.compile(problem);
    rows.push_back(options.race_only ? regret.race_row(problem, *options.race_only)
                                     : regret.exhaustive_row(problem, searched));
    if (rows.back().contains("error")) {
      fmt::print(stderr, "\n{}: {}\n", problem.name, rows.back()["error"].get<std::string>());
    }
  }
  // The ladder has all rows only now.
  for (const Searched& each : searched)
    for (json& row : rows)
      if (row["problem"] == each.problem->name) regret.add_ladder(row, each);
  fmt::print("{}\n", document_of(options, (*device)->target(), std::move(rows)).dump(1));
  return 0;
}

}  // namespace
}  // namespace saccade::bench

int main(int count, char** arguments) {
  saccade::bench::Options options;
  if (!saccade::bench::parse(count, arguments, options)) return saccade::bench::usage();
  std::signal(SIGINT, [](int) { saccade::bench::cancelled = true; });
  return saccade::bench::run(options);
}
