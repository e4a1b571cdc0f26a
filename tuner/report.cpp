#include "tuner/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "cache/store.h"
#include "runtime/compiler.h"

namespace saccade::tuner {
namespace {

using nlohmann::json;

std::string today() {
  const auto now = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
}

double rounded(double value, int digits) {
  if (!std::isfinite(value)) return 0;
  const double unit = std::pow(10.0, digits);
  return std::round(value * unit) / unit;
}

json schedule_json(const Schedule& schedule) { return json::parse(saccade::to_json(schedule)); }

/// The measured candidates that came next, fastest first.
json runners_up(const TuneReport& report) {
  constexpr std::size_t kKept = 4;
  std::vector<const CandidateReport*> lines;
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const CandidateReport& line = report.candidates[i];
    if (static_cast<int>(i) != report.winner_index && line.ratio > 0 && std::isfinite(line.ratio))
      lines.push_back(&line);
  }
  std::stable_sort(lines.begin(), lines.end(), [](const auto* a, const auto* b) { return a->ratio < b->ratio; });
  if (lines.size() > kKept) lines.resize(kKept);
  json result = json::array();
  for (const CandidateReport* line : lines) {
    result.push_back({{"schedule", schedule_json(line->schedule)},
                      {"us", rounded(line->median_us, 3)},
                      {"ratio_to_default", rounded(line->ratio, 4)}});
  }
  return result;
}

json counts(const TuneReport& report) {
  int measured = 0, failed = 0, rejected = 0;
  for (const CandidateReport& line : report.candidates) {
    measured += line.ratio > 0 ? 1 : 0;
    failed += line.state == CandidateState::failed ? 1 : 0;
    rejected += line.state == CandidateState::rejected_before ? 1 : 0;
  }
  return {{"candidates", report.candidates.size()},
          {"measured", measured},
          {"failed", failed},
          {"rejected_before", rejected}};
}

json candidate_json(const CandidateReport& line) {
  json result{{"schedule", schedule_json(line.schedule)},
              {"state", name_of(line.state)},
              {"origin", line.origin},
              {"predicted_us", rounded(line.predicted_us, 3)},
              {"shared_bytes", line.resources.shared_bytes},
              {"threads", line.resources.threads}};
  if (line.fault != Fault::none) result["fault"] = name_of(line.fault);
  if (!line.reason.empty()) result["reason"] = line.reason;
  if (line.median_us > 0) result["us"] = rounded(line.median_us, 3);
  if (line.ratio > 0) {
    result["ratio_to_default"] = rounded(line.ratio, 4);
    result["ratio_error"] = rounded(line.ratio_error, 4);
    result["samples"] = line.samples;
  }
  if (line.error_bound > 0) {
    result["error"] = line.error;
    result["error_bound"] = line.error_bound;
  }
  if (line.compile_ms > 0) result["compile_ms"] = rounded(line.compile_ms, 1);
  if (line.registers > 0) {
    result["registers"] = line.registers;
    result["spill_bytes"] = line.spill_bytes;
  }
  return result;
}

json setup_json(const RunnerSetup& setup) {
  const auto shape = [](const std::string& text) { return text.empty() ? json() : json::parse(text); };
  return {{"measured_shape", shape(setup.measured_shape)},
          {"gate_shape", shape(setup.gate_shape)},
          {"buffer_sets", setup.buffer_sets},
          {"buffer_bytes", setup.buffer_bytes}};
}

json summary(const TuneReport& report) {
  return {{"default_us", rounded(report.default_us, 3)},
          {"winner_us", rounded(report.winner_us, 3)},
          {"gain", rounded(report.gain, 4)},
          {"noise", rounded(report.noise, 4)},
          {"band", rounded(report.band, 4)},
          {"confirmed", report.confirmed},
          {"rounds", report.rounds},
          {"complete", report.complete},
          {"worker_restarts", report.worker_restarts},
          {"elapsed_ms", rounded(report.elapsed_ms, 1)},
          {"reason", report.reason},
          {"counts", counts(report)},
          {"setup", setup_json(report.setup)}};
}

}  // namespace

const char* name_of(TuningPolicy policy) {
  switch (policy) {
    case TuningPolicy::off: return "off";
    case TuningPolicy::quick: return "quick";
    case TuningPolicy::normal: return "normal";
    case TuningPolicy::exhaustive: return "exhaustive";
  }
  return "unknown";
}

const char* name_of(CandidateState state) {
  switch (state) {
    case CandidateState::not_tried: return "not_tried";
    case CandidateState::rejected_before: return "rejected_before";
    case CandidateState::failed: return "failed";
    case CandidateState::eliminated: return "eliminated";
    case CandidateState::measured: return "measured";
    case CandidateState::remembered: return "remembered";
    case CandidateState::winner: return "winner";
  }
  return "unknown";
}

std::string provenance_of(const TuneRequest& request, const TuneReport& report) {
  json result = summary(report);
  const Target& target = request.device->target();
  result["policy"] = name_of(request.policy);
  result["measurement"] = kMeasurementVersion;
  result["version"] = kGeneratorVersion;
  result["date"] = today();
  result["device"] = target.name;
  if (target.kind == Target::Kind::cuda) result["driver"] = cuda_driver_version();
  if (const Expected<const Compiler*> compiler = compiler_for(target.kind); compiler.ok()) {
    result["compiler"] = (*compiler)->identity();
  }
  result["default"] = schedule_json(report.candidates[static_cast<std::size_t>(report.default_index)].schedule);
  result["runners_up"] = runners_up(report);
  return result.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string to_json(const TuneReport& report) {
  json result = summary(report);
  result["schedule"] = schedule_json(report.outcome.schedule);
  result["cancelled"] = report.cancelled;
  result["default_index"] = report.default_index;
  result["winner_index"] = report.winner_index;
  json lines = json::array();
  for (const CandidateReport& line : report.candidates) lines.push_back(candidate_json(line));
  result["candidates"] = std::move(lines);
  return result.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string to_json(const Remembered& measured, const Schedule& standard) {
  return json{{"ratio", measured.ratio},
              {"error", std::isfinite(measured.error) ? measured.error : 1.0},
              {"us", measured.median_us},
              {"default", schedule_json(standard)},
              {"date", today()}}
      .dump();
}

std::optional<Remembered> remembered_from_json(const std::string& text, const Schedule& standard) {
  const json row = json::parse(text, nullptr, false);
  if (!row.is_object() || !row.contains("default") || row["default"] != schedule_json(standard)) return std::nullopt;
  for (const char* field : {"ratio", "error", "us"}) {
    if (!row.contains(field) || !row[field].is_number()) return std::nullopt;
  }
  const Remembered measured{row["ratio"].get<double>(), row["error"].get<double>(), row["us"].get<double>()};
  if (!(measured.ratio > 0)) return std::nullopt;
  return measured;
}

std::string measurement_key(const std::string& tuned_key, const Schedule& schedule) {
  return cache::KeyBuilder()
      .add("measurement", kMeasurementVersion)
      .add("tuned", tuned_key)
      .add("schedule", saccade::to_json(schedule))
      .bytes();
}

}  // namespace saccade::tuner
