#include "runtime/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/device_name.h"
#include "runtime/engine.h"
#include "runtime/json_parts.h"

namespace saccade {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// `shape` null: of the problem whatever its sizes.
Json families_json(const Problem& problem, const Target& target, const Shape* shape) {
  Json list = Json::array();
  bool any = false;
  for (const FamilyAnswer& answer : ask_families(problem, target, shape)) {
    any = any || answer.status.ok();
    list.push_back({{"family", answer.family->name}, {"ok", answer.status.ok()}, {"reason", answer.status.message()}});
  }
  return {{"ok", any}, {"families", std::move(list)}, {"target", target_json(target)}};
}

Shape shape_to_rank(const Shape& shape, const Problem& problem, const expr::Bindings& bindings) {
  return bindings.tables.empty() ? planning_shape(shape, problem) : shape;  // as the engine does
}

}  // namespace

std::string to_json(const Target& target) { return text_of(target_json(target)); }

std::string supports_json(const Problem& problem, const Target& target) {
  return text_of(families_json(problem, target, nullptr));
}

Expected<std::string> explain_json(const Problem& problem, const Shape& shape, const Target& target,
                                   const expr::Bindings& bindings, int most) {
  SACCADE_TRY(validate(problem));
  SACCADE_TRY(validate(shape, problem));
  Json json = families_json(problem, target, &shape);
  const Expected<const Family*> family = choose_family(problem, target, &shape);
  if (family.ok()) {
    const Shape planned = shape_to_rank(shape, problem, bindings);
    const std::vector<RankedSchedule> ranked = rank_candidates(**family, problem, target, planned, bindings);
    Json list = Json::array();
    for (std::size_t i = 0; i < std::min(ranked.size(), static_cast<std::size_t>(std::max(most, 0))); ++i) {
      const Resources resources = (*family)->resources(problem, target, ranked[i].schedule);
      list.push_back({{"schedule", Json::parse(to_json(ranked[i].schedule), nullptr, false)},
                      {"predicted", cost_json(ranked[i].cost)},
                      {"threads", resources.threads},
                      {"registers_per_thread", resources.registers_per_thread},
                      {"shared_bytes", resources.shared_bytes}});
    }
    json["family"] = (*family)->name;
    json["candidates"] = ranked.size();
    json["ranked"] = std::move(list);
    json["ranked_for"] = {{"seqlen_q", planned.seqlen_q}, {"seqlen_kv", planned.seqlen_kv}};
  }
  return text_of(json);
}

Expected<std::string> emit_source(const Problem& problem, const Shape& shape, const Target& target,
                                  const Schedule* schedule) {
  SACCADE_TRY(validate(problem));
  SACCADE_TRY(validate(shape, problem));
  if (schedule != nullptr) {
    const Family* family = find_family(schedule->family);
    if (family == nullptr || family->target_kind != target.kind) {
      return Status::invalid_argument(fmt::format("no family \"{}\" builds for {}", schedule->family, target.arch));
    }
    SACCADE_TRY(family->supports(problem, target));
    SACCADE_TRY(family->legal(problem, target, shape, *schedule));
    return family->emit(problem, target, *schedule);
  }
  SACCADE_ASSIGN(const Family* family, choose_family(problem, target, &shape));
  const std::vector<RankedSchedule> ranked =
      rank_candidates(*family, problem, target, planning_shape(shape, problem), {});
  if (ranked.empty())
    return Status::unsupported(fmt::format("{} has no schedule for this problem and shape", family->name));
  return family->emit(problem, target, ranked.front().schedule);
}

Expected<Target> target_from_name(std::string_view name) {
  if (name.starts_with("sm_")) return cuda_target(name);
  SACCADE_ASSIGN(const DeviceName device, parse_device_name(name));
  SACCADE_ASSIGN(const auto opened, device.kind == Target::Kind::cpu ? cpu_device() : cuda_device(device.ordinal));
  return opened->target();
}

}  // namespace saccade
