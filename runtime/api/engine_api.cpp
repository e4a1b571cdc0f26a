// Engines and problems of the C interface.
#include <nlohmann/json.hpp>

#include "runtime/api/boundary.h"

using namespace saccade;       // NOLINT(google-build-using-namespace): the C names are global
using namespace saccade::api;  // NOLINT(google-build-using-namespace)

namespace {

// The sizes in version 0.1.0, which every later version keeps reading.
constexpr std::size_t kFirstEngineOptions = 56;
constexpr std::size_t kFirstProblemOptions = 88;

Expected<EngineOptions> engine_options_from(const saccade_engine_options* given) {
  EngineOptions options;
  if (given == nullptr) return options;
  SACCADE_ASSIGN(const saccade_engine_options known, read_struct(given, kFirstEngineOptions, "engine options"));
  if (known.cache_directory != nullptr) options.cache.directory = known.cache_directory;
  if (known.pack_count > 0) SACCADE_TRY(require(known.packs, "packs"));
  for (std::size_t i = 0; i < known.pack_count; ++i) {
    SACCADE_TRY(require(known.packs[i], "the path of a pack"));
    options.cache.packs.emplace_back(known.packs[i]);
  }
  if (known.cache_max_bytes < 0) return Status::invalid_argument("cache_max_bytes is negative");
  if (known.cache_max_bytes > 0) options.cache.max_bytes = known.cache_max_bytes;
  options.cache.read_only = known.cache_read_only != 0;
  options.cache.memory_only = known.cache_memory_only != 0;
  options.cpu_threads = known.cpu_threads;
  options.frozen = known.frozen != 0;
  options.cache.require_signature = known.require_signature != 0;
  if (known.trusted_keys != nullptr) options.cache.trusted_keys = known.trusted_keys;
  if (known.capture != nullptr) options.capture = known.capture;
  return options;
}

std::string statistics_json(Engine& engine) {
  const EngineStatistics s = engine.statistics();
  nlohmann::json layers = nlohmann::json::array();
  for (const cache::LayerStatistics& layer : engine.store().statistics()) {
    layers.push_back({{"path", layer.path},
                      {"writable", layer.writable},
                      {"binaries", layer.binaries},
                      {"binary_bytes", layer.binary_bytes},
                      {"tuned", layer.tuned},
                      {"rejected", layer.rejected},
                      {"file_bytes", layer.file_bytes}});
  }
  const nlohmann::json json = {{"plan_hits", s.plan_hits}, {"plan_misses", s.plan_misses},
                               {"compiled", s.compiled},   {"cache_hits", s.cache_hits},
                               {"tuned", s.tuned},         {"compile_ms", s.compile_ms},
                               {"tune_ms", s.tune_ms},     {"cache", std::move(layers)}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

extern "C" {

saccade_status saccade_engine_create(const saccade_engine_options* options, saccade_engine** engine) {
  return guarded([&]() -> Status {
    SACCADE_TRY(require(engine, "engine"));
    *engine = nullptr;
    SACCADE_ASSIGN(const EngineOptions known, engine_options_from(options));
    auto made = std::make_unique<saccade_engine>();
    SACCADE_ASSIGN(made->engine, Engine::create(known));
    Expected<std::shared_ptr<const Device>> cpu = cpu_device(known.cpu_threads);
    if (!cpu.ok() && cpu.status().code() == StatusCode::invalid_argument) return cpu.status();
    if (cpu.ok()) {
      made->cpu = std::move(*cpu);
    } else {
      made->cpu_status = cpu.status();  // reported by the first use of the device
    }
    *engine = made.release();
    return {};
  });
}

void saccade_engine_destroy(saccade_engine* engine) { delete engine; }

saccade_status saccade_engine_statistics(saccade_engine* engine, char** json) {
  return guarded([&]() -> Status {
    SACCADE_TRY(require(engine, "engine"));
    SACCADE_TRY(require(json, "json"));
    return give_text(statistics_json(*engine->engine), json);
  });
}

saccade_status saccade_problem_create(const saccade_problem_options* options, saccade_problem** problem) {
  return guarded([&]() -> Status {
    SACCADE_TRY(require(problem, "problem"));
    *problem = nullptr;
    SACCADE_ASSIGN(const saccade_problem_options known, read_struct(options, kFirstProblemOptions, "problem options"));
    SACCADE_ASSIGN(Problem made, problem_from(known));
    *problem = new saccade_problem{std::move(made)};
    return {};
  });
}

saccade_status saccade_problem_from_json(const char* json, saccade_problem** problem) {
  return guarded([&]() -> Status {
    SACCADE_TRY(require(problem, "problem"));
    *problem = nullptr;
    SACCADE_TRY(require(json, "json"));
    SACCADE_ASSIGN(Problem made, problem_from_json(json));
    SACCADE_TRY(validate(made));
    *problem = new saccade_problem{std::move(made)};
    return {};
  });
}

saccade_status saccade_problem_to_json(const saccade_problem* problem, char** json) {
  return guarded([&]() -> Status {
    SACCADE_TRY(require(problem, "problem"));
    SACCADE_TRY(require(json, "json"));
    return give_text(to_json(problem->problem), json);
  });
}

void saccade_problem_destroy(saccade_problem* problem) { delete problem; }

}  // extern "C"
