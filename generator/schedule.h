// Schedule: how a problem is computed. A family and its named integer parameters, stored by name and never by index.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace saccade {

struct Schedule {
  std::string family;                          ///< such as "cuda.fwd.sm80"
  std::map<std::string, std::int64_t> params;  ///< such as {"tile_m", 128}

  bool operator==(const Schedule&) const = default;
  auto operator<=>(const Schedule&) const = default;
  /// The value of a parameter that the family's legality function has vouched for.
  std::int64_t at(std::string_view name) const;
};

/// {"family":"cuda.fwd.sm80","params":{"tile_m":128,...}}, keys sorted, no spaces.
std::string to_json(const Schedule& schedule);
Expected<Schedule> schedule_from_json(std::string_view json);

}  // namespace saccade
