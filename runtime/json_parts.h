// A predicted cost and a target as they stand in every JSON text. For .cpp files only.
#pragma once

#include <nlohmann/json.hpp>

#include "generator/family.h"

namespace saccade {

/// `Json` is nlohmann::json, or nlohmann::ordered_json where the order of fields is shown.
template <class Json = nlohmann::json>
Json cost_json(const Cost& cost) {
  return {{"total_us", cost.total_us},
          {"matrix_us", cost.matrix_us},
          {"exp_us", cost.exp_us},
          {"shared_us", cost.shared_us},
          {"memory_us", cost.memory_us},
          {"prologue_us", cost.prologue_us},
          {"wave_efficiency", cost.wave_efficiency}};
}

template <class Json = nlohmann::json>
Json target_json(const Target& target) {
  Json json = {
      {"kind", target.kind == Target::Kind::cuda ? "cuda" : "cpu"}, {"arch", target.arch}, {"name", target.name}};
  if (target.kind == Target::Kind::cuda) {
    json["compute_capability"] = target.compute_capability;
    json["sm_count"] = target.sm_count;
    json["shared_bytes_per_block"] = target.shared_bytes_per_block;
    json["shared_bytes_per_sm"] = target.shared_bytes_per_sm;
    json["clock_mhz"] = target.clock_mhz;
  } else {
    json["cores"] = target.cores;
    json["cpu"] = target.cpu;
    json["l1d_bytes"] = target.l1d_bytes;
    json["features"] = target.features;
  }
  json["l2_bytes"] = target.l2_bytes;
  json["memory_gb_per_s"] = target.memory_gb_per_s;
  return json;
}

}  // namespace saccade
