#include "generator/schedule.h"

#include <cassert>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "generator/json.h"

namespace saccade {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxJsonBytes = 64 * 1024;

bool is_plain_name(std::string_view name) {
  if (name.empty() || name.size() > 64) return false;
  for (const char c : name) {
    const bool allowed = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    if (!allowed) return false;
  }
  return true;
}

Expected<Schedule> read_schedule(const Json& json) {
  SACCADE_TRY(json::only_keys(json, "schedule", {"family", "params"}));
  Schedule schedule;
  SACCADE_ASSIGN(schedule.family, json::text(json::at(json, "family"), "family"));
  if (!is_plain_name(schedule.family)) {
    return Status::invalid_argument(
        fmt::format("\"family\": \"{}\" is not a name such as cuda.fwd.sm80", json::shown(schedule.family)));
  }
  const Json& params = json::at(json, "params");
  if (params.is_null()) return schedule;
  if (!params.is_object()) return json::wrong_type("params", "an object of integers");
  for (const auto& [key, value] : params.items()) {
    if (!is_plain_name(key)) {
      return Status::invalid_argument(
          fmt::format("\"params\": \"{}\" is not a parameter name; lower-case letters, digits and '_' are allowed",
                      json::shown(key)));
    }
    SACCADE_ASSIGN(schedule.params[key], json::integer(value, "params." + key, std::numeric_limits<std::int64_t>::min(),
                                                       std::numeric_limits<std::int64_t>::max()));
  }
  return schedule;
}

}  // namespace

std::int64_t Schedule::at(std::string_view name) const {
  const auto found = params.find(std::string(name));
  assert(found != params.end());
  return found == params.end() ? 0 : found->second;
}

std::string to_json(const Schedule& schedule) {
  Json json = {{"family", schedule.family}, {"params", Json::object()}};
  for (const auto& [name, value] : schedule.params) json["params"][name] = value;
  return json::dump(json);
}

Expected<Schedule> schedule_from_json(std::string_view text) {
  SACCADE_ASSIGN(const Json json, json::parse(text, kMaxJsonBytes));
  return read_schedule(json);
}

}  // namespace saccade
