// A plan's report as JSON.
#include <nlohmann/json.hpp>

#include "runtime/engine.h"
#include "runtime/json_parts.h"

namespace saccade {

std::string to_json(const PlanReport& report) {
  nlohmann::json json;
  json["problem"] = nlohmann::json::parse(report.problem_json, nullptr, false);
  json["schedule"] = nlohmann::json::parse(to_json(report.schedule), nullptr, false);
  json["schedule_source"] = report.schedule_source;
  json["binary_source"] = report.binary_source;
  json["declined"] = report.declined;
  json["predicted"] = cost_json(report.cost);
  json["registers"] = report.registers;
  json["spill_bytes"] = report.spill_bytes;
  json["shared_bytes"] = report.shared_bytes;
  json["workspace_bytes"] = report.workspace_bytes;
  json["times_ms"] = {{"choose", report.choose_ms},
                      {"emit", report.emit_ms},
                      {"compile", report.compile_ms},
                      {"load", report.load_ms},
                      {"total", report.total_ms}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace saccade
