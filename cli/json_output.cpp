#include "cli/json_output.h"

#include "cli/output.h"
#include "runtime/json_parts.h"

namespace saccade::cli {

void print_json(const Json& document) { print_line(document.dump(2, ' ', true, Json::error_handler_t::replace)); }

Json parsed(const std::string& json) {
  // Deep nesting would overflow the stack when it is written out again.
  constexpr int kMostDepth = 32;
  bool too_deep = false;
  const auto check = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMostDepth;
    return !too_deep;
  };
  Json value = Json::parse(json, check, false);
  return too_deep || value.is_discarded() ? Json(json) : value;
}

Json json_of(const Cost& cost) { return cost_json<Json>(cost); }

Json json_of(const Shape& shape, const Problem& problem) {
  Json json = {{"batch", shape.batch},
               {"heads_q", shape.heads_q},
               {"heads_kv", shape.heads_kv},
               {"seqlen_q", shape.seqlen_q},
               {"seqlen_kv", shape.seqlen_kv}};
  if (problem.layout == Layout::varlen) {
    json["total_q"] = shape.total_q;
    json["total_kv"] = shape.total_kv;
  }
  return json;
}

Json json_of(const Target& target) { return target_json<Json>(target); }

Json json_of(const Verification& verification, bool with_lse) {
  const ErrorReport& report = verification.report;
  Json json = {{"pass", verification.pass()},
               {"rows_checked", verification.rows_checked},
               {"rows", verification.rows},
               {"o_error", report.o_error},
               {"o_bound", report.o_bound}};
  if (with_lse) {
    json["lse_error"] = report.lse_error;
    json["lse_bound"] = report.lse_bound;
  }
  if (!report.detail.empty()) json["detail"] = report.detail;
  if (verification.stray_nan) json["stray_nan"] = true;
  return json;
}

}  // namespace saccade::cli
