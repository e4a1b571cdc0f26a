// Writes the generator's kernels for a list of cases, for the experiments in this folder.
//
//   kernel_dev_emit CASES.json OUTPUT_DIR
//
// CASES: [{"arch": "sm_90a", "problem": {...}, "batch": 1, "heads_q": 1, "heads_kv": 1, "seqlen_q": 1, "seqlen_kv": 1,
//          "alignment": 16, "scalars": [], "top": 1}, ...]. Writes OUTPUT_DIR/N.cu for each distinct source, and
//          index.json with
// the `top` cheapest schedules of each case by the cost model, cheapest first (0: all candidates).
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "generator/families/families.h"

namespace {

using nlohmann::json;

json describe(const saccade::Problem& problem, const saccade::Target& target, const saccade::Shape& shape,
              const saccade::RankedSchedule& ranked, const std::string& file) {
  const saccade::Family& family = saccade::kCudaForwardSm80;
  const saccade::Cost& cost = ranked.cost;
  const auto geometry = family.launch_geometry(problem, target, shape, ranked.schedule);
  json result = {{"file", file},
                 {"schedule", json::parse(to_json(ranked.schedule))},
                 {"predicted_us", cost.total_us},
                 {"parts_us", {cost.matrix_us, cost.exp_us, cost.shared_us, cost.memory_us, cost.prologue_us}}};
  if (!geometry.launches.empty()) {
    const saccade::Launch& launch = geometry.launches.front();
    result["grid"] = launch.grid;
    result["block"] = launch.block;
    result["shared_bytes"] = launch.shared_bytes;
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fputs("usage: kernel_dev_emit CASES.json OUTPUT_DIR\n", stderr), 2;
  const json cases = json::parse(std::ifstream(argv[1]));
  const std::string output = argv[2];
  std::map<std::string, std::string> files;  // source -> name
  json index = json::array();
  for (const json& item : cases) {
    auto problem = saccade::problem_from_json(item["problem"].dump());
    auto target = saccade::cuda_target(item.value("arch", "sm_90a"));
    if (!problem.ok() || !target.ok()) {
      std::fprintf(stderr, "%s\n", (problem.ok() ? target.status() : problem.status()).message().c_str());
      return 1;
    }
    saccade::Shape shape;
    shape.batch = item["batch"];
    shape.heads_q = item["heads_q"];
    shape.heads_kv = item.value("heads_kv", shape.heads_q);
    shape.seqlen_q = item["seqlen_q"];
    shape.seqlen_kv = item.value("seqlen_kv", shape.seqlen_q);
    shape.alignment = item.value("alignment", 16);
    saccade::expr::Bindings bindings;
    for (const json& scalar : item.value("scalars", json::array())) bindings.scalars.push_back(scalar.get<double>());
    bindings.tables.resize(problem->declarations.tables.size());
    const auto start = std::chrono::steady_clock::now();
    auto ranked = rank_candidates(saccade::kCudaForwardSm80, *problem, *target, shape, bindings);
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    json entry = item;
    entry["candidates"] = ranked.size();
    entry["rank_ms"] = elapsed.count();
    const std::size_t top = item.value("top", 1);
    if (top != 0 && ranked.size() > top) ranked.resize(top);
    for (const saccade::RankedSchedule& one : ranked) {
      const std::string source = saccade::kCudaForwardSm80.emit(*problem, *target, one.schedule);
      const auto [found, fresh] = files.try_emplace(source, std::to_string(files.size()) + ".cu");
      if (fresh) std::ofstream(output + "/" + found->second) << source;
      entry["schedules"].push_back(describe(*problem, *target, shape, one, found->second));
    }
    index.push_back(entry);
  }
  std::ofstream(output + "/index.json") << index.dump(1);
  return 0;
}
