#include "tuner/protocol.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace saccade::tuner::protocol {
namespace {

using nlohmann::json;

/// Thrown and caught inside this file only: a decoder that reads thirty fields would drown in status checks.
struct BadMessage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class T>
T value_of(Expected<T> expected) {
  if (!expected.ok()) throw BadMessage(expected.status().message());
  return std::move(expected).value();
}

json json_of(const Measurement& m) {
  return {{"sample_us", m.sample_us},
          {"max_repeats", m.max_repeats},
          {"run_limit_us", m.run_limit_us},
          {"gate_seqlen", m.gate_seqlen},
          {"gate_batch", m.gate_batch},
          {"gate_heads", m.gate_heads},
          {"seed", m.seed}};
}

Measurement measurement_of(const json& j) {
  Measurement m;
  m.sample_us = j.at("sample_us").get<double>();
  m.max_repeats = j.at("max_repeats").get<int>();
  m.run_limit_us = j.at("run_limit_us").get<double>();
  m.gate_seqlen = j.at("gate_seqlen").get<int>();
  m.gate_batch = j.at("gate_batch").get<int>();
  m.gate_heads = j.at("gate_heads").get<int>();
  m.seed = j.at("seed").get<std::uint64_t>();
  return m;
}

/// Scalars may be infinite or NaN, which JSON numbers cannot be.
std::string text_of(double value) { return fmt::format("{:a}", value); }

double double_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') throw BadMessage(fmt::format("'{}' is not a number", text));
  return value;
}

json json_of(const WireTable& table) {
  return {{"has_data", table.has_data},
          {"offset", table.offset},
          {"bytes", table.bytes},
          {"extent", table.extent},
          {"stride", table.stride}};
}

WireTable table_of(const json& j) {
  WireTable table;
  table.has_data = j.at("has_data").get<bool>();
  table.offset = j.at("offset").get<std::int64_t>();
  table.bytes = j.at("bytes").get<std::int64_t>();
  if (table.offset < 0 || table.bytes < 0) throw BadMessage("negative place of a table");
  for (std::size_t i = 0; i < 4; ++i) {
    table.extent[i] = j.at("extent").at(i).get<std::int64_t>();
    table.stride[i] = j.at("stride").at(i).get<std::int64_t>();
  }
  return table;
}

constexpr std::pair<Phase, const char*> kPhases[] = {
    {Phase::compile, "compile"}, {Phase::gate, "gate"}, {Phase::warm, "warm"}, {Phase::sample, "sample"}};
constexpr Fault kFaults[] = {Fault::none,    Fault::refused, Fault::compile_failed, Fault::wrong_result,
                             Fault::crashed, Fault::hung,    Fault::interrupted};

Phase phase_of(const std::string& name) {
  for (const auto& [phase, text] : kPhases) {
    if (name == text) return phase;
  }
  throw BadMessage(fmt::format("unknown phase '{}'", name));
}

Fault fault_of(const std::string& name) {
  for (const Fault fault : kFaults) {
    if (name == tuner::name_of(fault)) return fault;
  }
  throw BadMessage(fmt::format("unknown fault '{}'", name));
}

json json_of(const Request& request) {
  return std::visit(
      [](const auto& r) -> json {
        using T = std::decay_t<decltype(r)>;
        if constexpr (std::is_same_v<T, Open>) {
          json scalars = json::array(), tables = json::array();
          for (const double value : r.scalars) scalars.push_back(text_of(value));
          for (const WireTable& table : r.tables) tables.push_back(json_of(table));
          return {{"command", "open"},
                  {"problem", json::parse(to_json(r.problem.problem))},
                  {"shape", json::parse(to_json(r.problem.shape))},
                  {"measurement", json_of(r.problem.measurement)},
                  {"predicted_us", text_of(r.problem.predicted_us)},
                  {"scalars", scalars},
                  {"tables", tables},
                  {"cuda", r.is_cuda},
                  {"ordinal", r.ordinal},
                  {"sm_count", r.sm_count},
                  {"threads", r.threads},
                  {"arch", r.arch},
                  {"identity", r.tuning_identity},
                  {"cache", r.cache_directory}};
        } else if constexpr (std::is_same_v<T, Prefetch>) {
          json schedules = json::array();
          for (const Schedule& schedule : r.schedules) schedules.push_back(json::parse(to_json(schedule)));
          return {{"command", "prefetch"}, {"schedules", schedules}};
        } else if constexpr (std::is_same_v<T, Add>) {
          return {
              {"command", "add"}, {"id", r.id}, {"schedule", json::parse(to_json(r.schedule))}, {"trusted", r.trusted}};
        } else if constexpr (std::is_same_v<T, Time>) {
          return {{"command", "time"}, {"ids", r.ids}};
        } else {
          return {{"command", "drop"}, {"id", r.id}};
        }
      },
      request);
}

Open open_of(const json& j) {
  Open open;
  open.problem.problem = value_of(problem_from_json(j.at("problem").dump()));
  open.problem.shape = value_of(shape_from_json(j.at("shape").dump()));
  open.problem.measurement = measurement_of(j.at("measurement"));
  open.problem.predicted_us = double_of(j.at("predicted_us").get<std::string>());
  for (const json& value : j.at("scalars")) open.scalars.push_back(double_of(value.get<std::string>()));
  for (const json& table : j.at("tables")) open.tables.push_back(table_of(table));
  open.is_cuda = j.at("cuda").get<bool>();
  open.ordinal = j.at("ordinal").get<int>();
  open.sm_count = j.at("sm_count").get<int>();
  open.threads = j.at("threads").get<int>();
  open.arch = j.at("arch").get<std::string>();
  open.tuning_identity = j.at("identity").get<std::string>();
  open.cache_directory = j.at("cache").get<std::string>();
  return open;
}

Request request_of(const json& j) {
  const std::string command = j.at("command").get<std::string>();
  if (command == "open") return open_of(j);
  if (command == "prefetch") {
    Prefetch prefetch;
    for (const json& s : j.at("schedules")) prefetch.schedules.push_back(value_of(schedule_from_json(s.dump())));
    return prefetch;
  }
  if (command == "add") {
    return Add{j.at("id").get<int>(), value_of(schedule_from_json(j.at("schedule").dump())),
               j.at("trusted").get<bool>()};
  }
  if (command == "time") return Time{j.at("ids").get<std::vector<int>>()};
  if (command == "drop") return Drop{j.at("id").get<int>()};
  throw BadMessage(fmt::format("unknown command '{}'", command));
}

json json_of(const AddOutcome& o) {
  return {{"fault", tuner::name_of(o.fault)}, {"reason", o.reason},
          {"compile_ms", o.compile_ms},       {"binary_source", o.binary_source},
          {"registers", o.registers},         {"spill_bytes", o.spill_bytes},
          {"error", text_of(o.error)},        {"error_bound", text_of(o.error_bound)},
          {"estimate_us", o.estimate_us}};
}

AddOutcome outcome_of(const json& j) {
  AddOutcome o;
  o.fault = fault_of(j.at("fault").get<std::string>());
  o.reason = j.at("reason").get<std::string>();
  o.compile_ms = j.at("compile_ms").get<double>();
  o.binary_source = j.at("binary_source").get<std::string>();
  o.registers = j.at("registers").get<int>();
  o.spill_bytes = j.at("spill_bytes").get<std::int64_t>();
  o.error = double_of(j.at("error").get<std::string>());
  o.error_bound = double_of(j.at("error_bound").get<std::string>());
  o.estimate_us = j.at("estimate_us").get<double>();
  return o;
}

json json_of(const Reply& reply) {
  return std::visit(
      [](const auto& r) -> json {
        using T = std::decay_t<decltype(r)>;
        if constexpr (std::is_same_v<T, Hello>) {
          return {{"reply", "hello"}, {"protocol", r.protocol}, {"abi", r.abi}, {"version", r.version}};
        } else if constexpr (std::is_same_v<T, Setup>) {
          return {{"reply", "setup"},
                  {"measured_shape", r.setup.measured_shape},
                  {"gate_shape", r.setup.gate_shape},
                  {"buffer_sets", r.setup.buffer_sets},
                  {"buffer_bytes", r.setup.buffer_bytes}};
        } else if constexpr (std::is_same_v<T, PhaseStart>) {
          return {{"reply", "phase"}, {"phase", name_of(r.phase)}, {"id", r.id}};
        } else if constexpr (std::is_same_v<T, Added>) {
          return {{"reply", "added"}, {"id", r.id}, {"outcome", json_of(r.outcome)}};
        } else if constexpr (std::is_same_v<T, Sample>) {
          return {{"reply", "sample"}, {"id", r.id}, {"us", r.us}};
        } else if constexpr (std::is_same_v<T, Failed>) {
          return {{"reply", "failed"},
                  {"id", r.failure.id},
                  {"fault", tuner::name_of(r.failure.fault)},
                  {"reason", r.failure.reason}};
        } else if constexpr (std::is_same_v<T, Done>) {
          return {{"reply", "done"}};
        } else {
          return {{"reply", "error"}, {"code", static_cast<int>(r.status.code())}, {"message", r.status.message()}};
        }
      },
      reply);
}

Reply reply_of(const json& j) {
  const std::string kind = j.at("reply").get<std::string>();
  if (kind == "hello") {
    return Hello{j.at("protocol").get<int>(), j.at("abi").get<int>(), j.at("version").get<std::string>()};
  }
  if (kind == "setup") {
    return Setup{{j.at("measured_shape").get<std::string>(), j.at("buffer_sets").get<int>(),
                  j.at("buffer_bytes").get<std::int64_t>(), j.at("gate_shape").get<std::string>()}};
  }
  if (kind == "phase") return PhaseStart{phase_of(j.at("phase").get<std::string>()), j.at("id").get<int>()};
  if (kind == "added") return Added{j.at("id").get<int>(), outcome_of(j.at("outcome"))};
  if (kind == "sample") return Sample{j.at("id").get<int>(), j.at("us").get<double>()};
  if (kind == "failed") {
    return Failed{
        {j.at("id").get<int>(), fault_of(j.at("fault").get<std::string>()), j.at("reason").get<std::string>()}};
  }
  if (kind == "done") return Done{};
  if (kind == "error") {
    const int code = j.at("code").get<int>();
    if (code < static_cast<int>(StatusCode::invalid_argument) || code > static_cast<int>(StatusCode::internal)) {
      throw BadMessage(fmt::format("unknown status code {}", code));
    }
    return Error{Status(static_cast<StatusCode>(code), j.at("message").get<std::string>())};
  }
  throw BadMessage(fmt::format("unknown reply '{}'", kind));
}

/// Compiler logs may hold bytes that are not UTF-8.
std::string line_of(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); }

template <class T, class Decode>
Expected<T> decode(std::string_view line, Decode decode_json) {
  if (line.size() > kMaxLineBytes) return Status::invalid_argument("a message longer than the protocol allows");
  try {
    const json j = json::parse(line);
    if (!j.is_object()) return Status::invalid_argument("a message that is no JSON object");
    return decode_json(j);
  } catch (const json::exception& error) {
    return Status::invalid_argument(fmt::format("malformed message: {}", error.what()));
  } catch (const BadMessage& error) {
    return Status::invalid_argument(fmt::format("malformed message: {}", error.what()));
  }
}

}  // namespace

const char* name_of(Phase phase) {
  for (const auto& [value, text] : kPhases) {
    if (value == phase) return text;
  }
  return "unknown";
}

std::string encode(const Request& request) { return line_of(json_of(request)); }
std::string encode(const Reply& reply) { return line_of(json_of(reply)); }
Expected<Request> decode_request(std::string_view line) { return decode<Request>(line, request_of); }
Expected<Reply> decode_reply(std::string_view line) { return decode<Reply>(line, reply_of); }

}  // namespace saccade::tuner::protocol
