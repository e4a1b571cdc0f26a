// Schedules of a problem beside each other on a GPU: each is compiled, held against the float64 oracle on a small problem and
// timed in a burst of single launches. For experiments and for fitting cost models.
//
//   schedules [--rounds N] [--sample-us US] [--threads N] PROBLEMS.json > result.json
//
// PROBLEMS.json: [{"name":"..", "problem":{..}, "shape":{"batch":..,"heads_q":..,"heads_kv":..,"seqlen_q":..,"seqlen_kv":..},
//   "schedules":[{"family":..,"params":{..}}, ..], "families":[..]}, ..]: the schedules named, and the cost model's first choice
//   of each family named. With neither, every candidate of the problem's family.
// Progress goes to standard error.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/together.h"
#include "runtime/engine.h"
#include "tuner/local_runner.h"
#include "tuner/statistics.h"

namespace saccade::bench {
namespace {

using nlohmann::json;

struct Options {
  int rounds = 20;
  double sample_us = 1;
  unsigned threads = std::max(std::thread::hardware_concurrency(), 1u);
  std::string file;
};

struct Entry {
  std::string name;
  Problem problem;
  Shape shape;
  std::vector<Schedule> schedules;
};

bool parse(int count, char** arguments, Options& options) {
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name.rfind("--", 0) != 0) {
      options.file = name;
    } else if (i + 1 == count) {
      return false;
    } else if (name == "--rounds") {
      options.rounds = std::atoi(arguments[++i]);
    } else if (name == "--sample-us") {
      options.sample_us = std::atof(arguments[++i]);
    } else if (name == "--threads") {
      options.threads = static_cast<unsigned>(std::atoi(arguments[++i]));
    } else {
      return false;
    }
  }
  return !options.file.empty() && options.rounds > 0 && options.threads > 0;
}

Expected<Entry> entry_of(const json& text, const Target& target) {
  SACCADE_ASSIGN(const Problem problem, problem_from_json(text.at("problem").dump()));
  SACCADE_ASSIGN(const Shape shape, shape_from_json(text.at("shape").dump()));
  Entry entry{text.at("name"), problem, shape, {}};
  for (const json& name : text.value("families", json::array())) {
    const Family* family = find_family(name.get<std::string>());
    if (family == nullptr) return Status::invalid_argument(fmt::format("no family {}", name.dump()));
    const std::vector<RankedSchedule> ranked = rank_candidates(*family, problem, target, entry.shape, {});
    if (!ranked.empty()) entry.schedules.push_back(ranked.front().schedule);
  }
  if (!text.contains("schedules") && !text.contains("families")) {
    SACCADE_ASSIGN(const Family* family, choose_family(problem, target, &entry.shape));
    entry.schedules = family->candidates(problem, target, entry.shape);
  } else {
    for (const json& schedule : text.value("schedules", json::array())) {
      SACCADE_ASSIGN(Schedule parsed, schedule_from_json(schedule.dump()));
      entry.schedules.push_back(std::move(parsed));
    }
  }
  return entry;
}

/// Puts all binaries into the engine's cache, with all cores.
void compile_all(Engine& engine, const Target& target, const std::vector<Entry>& entries, unsigned threads) {
  std::vector<std::pair<const Entry*, const Schedule*>> work;
  for (const Entry& entry : entries)
    for (const Schedule& schedule : entry.schedules) work.emplace_back(&entry, &schedule);
  std::atomic<std::size_t> next{0};
  work_together(threads, [&] {
    for (std::size_t at = next++; at < work.size(); at = next++) {
      // A failure shows again, with its reason, when the schedule is added.
      (void)engine.build(work[at].first->problem, target, *work[at].second, true);
    }
  });
}

Expected<json> measure(Engine& engine, const std::shared_ptr<const Device>& device, const Entry& entry,
                       const Options& options) {
  tuner::RunnerProblem problem{entry.problem, entry.shape, {}, {}, 0};
  problem.measurement.sample_us = options.sample_us;
  SACCADE_ASSIGN(const std::unique_ptr<tuner::LocalRunner> runner, tuner::LocalRunner::open(engine, device, problem));
  json rows = json::array();
  std::vector<int> good;
  std::vector<std::vector<double>> samples(entry.schedules.size());
  for (std::size_t i = 0; i < entry.schedules.size(); ++i) {
    const tuner::AddOutcome added = runner->add(static_cast<int>(i), entry.schedules[i], 0, {});
    const Family* family = find_family(entry.schedules[i].family);
    rows.push_back(
        {{"schedule", json::parse(to_json(entry.schedules[i]))},
         {"registers", added.registers},
         {"spill_bytes", added.spill_bytes},
         {"compile_ms", added.compile_ms},
         {"error", added.error},
         {"error_bound", added.error_bound},
         {"predicted_us",
          predict_cost(*family, entry.problem, device->target(), entry.shape, {}, entry.schedules[i]).total_us}});
    if (added.fault == tuner::Fault::none) {
      good.push_back(static_cast<int>(i));
    } else {
      rows.back()["fault"] = fmt::format("{}: {}", name_of(added.fault), added.reason);
      fmt::print(stderr, "{} {}: {}\n", entry.name, to_json(entry.schedules[i]), added.reason);
    }
  }
  // In bursts, as bench/data/h200-anchors.csv was made: after 200 ms of rest, three warm-up runs and then the samples.
  constexpr int kWarmUps = 3;
  for (const int id : good) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (int round = -kWarmUps; round < options.rounds; ++round) {
      const Expected<double> us = runner->sample(id);
      if (us.ok() && round >= 0) samples[static_cast<std::size_t>(id)].push_back(*us);
    }
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].empty()) continue;
    rows[i]["us"] = tuner::median(samples[i]);
    rows[i]["samples_us"] = samples[i];
  }
  return json{{"name", entry.name}, {"setup", runner->setup().measured_shape}, {"rows", std::move(rows)}};
}

int run(const Options& options) {
  const Expected<std::shared_ptr<Engine>> engine = Engine::create({});
  const Expected<std::shared_ptr<const Device>> device = cuda_device(0);
  for (const Status& status : {engine.status(), device.status()}) {
    if (status.ok()) continue;
    fmt::print(stderr, "schedules: {}\n", status.message());
    return 1;
  }
  std::ifstream file(options.file);
  std::vector<Entry> entries;
  for (const json& text : json::parse(file)) {
    Expected<Entry> entry = entry_of(text, (*device)->target());
    if (!entry.ok()) {
      fmt::print(stderr, "schedules: {}\n", entry.status().message());
      return 1;
    }
    entries.push_back(std::move(entry).value());
  }
  compile_all(**engine, (*device)->target(), entries, options.threads);
  json results = json::array();
  for (const Entry& entry : entries) {
    Expected<json> measured = measure(**engine, *device, entry, options);
    results.push_back(measured.ok() ? *measured : json{{"name", entry.name}, {"error", measured.status().message()}});
  }
  fmt::print("{}\n", results.dump());
  return 0;
}

}  // namespace
}  // namespace saccade::bench

int main(int count, char** arguments) {
  saccade::bench::Options options;
  if (!saccade::bench::parse(count, arguments, options)) {
    std::fputs("usage: schedules [--rounds N] [--sample-us US] [--threads N] PROBLEMS.json\n", stderr);
    return 2;
  }
  return saccade::bench::run(options);
}
