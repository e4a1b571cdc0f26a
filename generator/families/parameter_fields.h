// A family's parameters as a struct of integers, and the table of their names and ranges between it and a Schedule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/status.h"
#include "generator/schedule.h"

namespace saccade {

template <class Parameters>
struct ParameterField {
  std::string_view name;
  std::int64_t Parameters::* member;
  std::int64_t lowest, highest;
};

template <class Parameters>
Schedule schedule_of(std::string_view family, std::span<const ParameterField<Parameters>> fields,
                     const Parameters& parameters) {
  Schedule schedule{std::string(family), {}};
  for (const auto& field : fields) schedule.params.emplace(field.name, parameters.*field.member);
  return schedule;
}

/// `invalid_argument` when the family is another one, or a parameter is missing, unknown or out of its range.
template <class Parameters>
Expected<Parameters> parameters_of(std::string_view family, std::span<const ParameterField<Parameters>> fields,
                                   const Schedule& schedule) {
  if (schedule.family != family) {
    return Status::invalid_argument(fmt::format("a schedule of family {} was given to {}", schedule.family, family));
  }
  Parameters parameters;
  for (const auto& field : fields) {
    const auto found = schedule.params.find(std::string(field.name));
    if (found == schedule.params.end()) {
      return Status::invalid_argument(fmt::format("{}: parameter {} is missing", family, field.name));
    }
    if (found->second < field.lowest || found->second > field.highest) {
      return Status::invalid_argument(fmt::format("{}: {} = {} is not in {} to {}", family, field.name, found->second,
                                                  field.lowest, field.highest));
    }
    parameters.*field.member = found->second;
  }
  for (const auto& entry : schedule.params) {
    if (std::none_of(fields.begin(), fields.end(), [&](const auto& field) { return field.name == entry.first; })) {
      return Status::invalid_argument(fmt::format("{}: unknown parameter {}", family, entry.first));
    }
  }
  return parameters;
}

}  // namespace saccade
