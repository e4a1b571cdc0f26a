// A predicted cost as it stands in every JSON text. For .cpp files only.
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

}  // namespace saccade
