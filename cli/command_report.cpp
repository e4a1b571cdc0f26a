// saccade report: one self-contained HTML page of a sweep's log.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cli/byte_source.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/report_page.h"
#include "cli/session.h"
#include "cli/workload.h"
#include "generator/json.h"
#include "tuner/profile.h"

namespace saccade::cli {
namespace {

constexpr std::uint64_t kMaxLogBytes = std::uint64_t{256} << 20;

/// Operations and bytes of a run: of the pairs that the mask keeps, as far as a sample of tiles can tell.
struct Work {
  double flop = 0, bytes = 0;
};

Work work_of(const tuner::SweepCase& item, const Shape& shape) {
  const Problem& problem = item.problem;
  expr::Bindings bindings;
  bindings.scalars = item.scalars;
  const MaskDensity density = mask_density(problem, shape, bindings, 32, 32);
  const bool varlen = problem.layout == Layout::varlen;
  const auto rows = [&](std::int64_t total, std::int64_t length) {
    return static_cast<double>(varlen ? total : shape.batch * length);
  };
  const double rows_q = rows(shape.total_q, shape.seqlen_q), rows_kv = rows(shape.total_kv, shape.seqlen_kv);
  const double pairs = shape.batch > 0 ? rows_q * rows_kv / static_cast<double>(shape.batch) : 0;
  const double columns = problem.head_dim_qk + problem.head_dim_v, element = size_of(problem.q_dtype);
  return {2 * columns * pairs * static_cast<double>(shape.heads_q) * (density.computed - density.mixed / 2),
          element * columns *
              (rows_q * static_cast<double>(shape.heads_q) + rows_kv * static_cast<double>(shape.heads_kv))};
}

/// 0 for what is no number, or none that a chart has a place for.
double number(const Json& object, const char* name) {
  const double value =
      object.is_object() && object.contains(name) && object[name].is_number() ? object[name].get<double>() : 0;
  return std::abs(value) < 1e15 ? value : 0;
}

std::string text(const Json& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name].is_string() ? object[name].get<std::string>() : "";
}

/// What tensor cores give with 16-bit inputs, of the architectures whose rate for an SM and cycle is known to us (NVIDIA's data sheets);
/// 0 for others.
double peak_tflops(const Json& device) {
  const std::map<std::string, double> flop_per_cycle = {{"sm_80", 2048}, {"sm_90a", 4096}};
  if (text(device, "kind") != "cuda") return 0;
  const auto rate = flop_per_cycle.find(text(device, "arch"));
  // The clock of the data sheets' rates, of the H100 and H200, is below the highest.
  const double mhz = text(device, "arch") == "sm_90a" ? 1830 : number(device, "clock_mhz");
  return rate == flop_per_cycle.end() ? 0 : rate->second * number(device, "sm_count") * mhz / 1e6;
}

Json candidate_of(const Json& line) {
  const auto schedule = schedule_from_json(line.contains("schedule") ? line["schedule"].dump() : "");
  Json candidate = {{"schedule", schedule.ok() ? schedule_text(*schedule) : ""},
                    {"origin", text(line, "origin")},
                    {"state", text(line, "state")},
                    {"reason", text(line, "reason")}};
  for (const auto& [from, to] : {std::pair{"predicted_us", "predicted_us"}, std::pair{"us", "us"},
                                 std::pair{"ratio_to_default", "ratio"}, std::pair{"ratio_error", "ratio_error"},
                                 std::pair{"registers", "registers"}, std::pair{"spill_bytes", "spill_bytes"}})
    candidate[to] = number(line, from);
  return candidate;
}

/// The row of a log's line for the page; nothing for what is no race.
std::optional<Json> row_of(const Json& line, const tuner::SweepCase& item) {
  const Json report = line.contains("report") ? line["report"] : Json();
  if (!report.is_object() || !report.contains("candidates") || !report["candidates"].is_array()) return std::nullopt;
  const std::string size = describe(item.problem, item.shape), label = text(line, "label");
  Json row = {{"text", label.empty() ? size : label + ": " + size},
              {"problem", saccade::to_json(item.problem)},
              {"shape", saccade::to_json(item.shape)},
              {"reason", text(report, "reason")}};
  for (const char* name : {"default_us", "winner_us", "gain", "noise", "elapsed_ms"}) row[name] = number(report, name);
  // A long problem is raced at shorter lengths; its times are of those.
  Shape measured = item.shape;
  if (report.contains("setup") && report["setup"].is_object() && report["setup"].contains("measured_shape")) {
    if (const auto shape = shape_from_json(report["setup"]["measured_shape"].dump()); shape.ok()) measured = *shape;
  }
  const Work work = work_of(item, measured);
  row["flop"] = work.flop;
  row["bytes"] = work.bytes;
  double compile_ms = 0;
  row["candidates"] = Json::array();
  for (const Json& candidate : report["candidates"]) {
    compile_ms += number(candidate, "compile_ms");
    row["candidates"].push_back(candidate_of(candidate));
  }
  row["compile_ms"] = compile_ms;
  return row;
}

/// The rows of logs, of each problem and shape the last one. All of one device.
class Page {
 public:
  Status add_file(const std::string& path) {
    SACCADE_ASSIGN(const std::string content, read_text_file(path, kMaxLogBytes));
    std::string_view rest = content;
    for (int number = 1; !rest.empty(); ++number) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      if (!json::parse(line, kMaxLogBytes).ok()) {  // what a sweep that was killed leaves
        log::warn_once(fmt::format("{}: line {} is no JSON; it is left out", path, number));
        continue;
      }
      const Status status = add_line(line);
      if (!status.ok()) return Status::invalid_argument(fmt::format("{}: line {}: {}", path, number, status.message()));
    }
    return {};
  }

  bool is_empty() const { return rows_.empty(); }
  std::size_t size() const { return rows_.size(); }

  Json document() const {
    Json rows = Json::array();
    for (const Json& row : rows_) rows.push_back(row);
    return {{"device", device_}, {"peak_tflops", peak_tflops(device_)}, {"rows", rows}};
  }

 private:
  Status add_line(std::string_view text_line) {
    SACCADE_ASSIGN(const Json line, json::parse(text_line, kMaxLogBytes));
    if (!line.is_object() || !line.contains("device") || !line["device"].is_object() || !line.contains("problem") ||
        !line.contains("shape"))
      return Status::invalid_argument("no race of a sweep (`saccade sweep --log` writes them)");
    const Json item_json = {{"problem", line["problem"]}, {"shape", line["shape"]}};
    Json with_scalars = item_json;
    if (line.contains("scalars")) with_scalars["scalars"] = line["scalars"];
    SACCADE_ASSIGN(const auto cases, tuner::read_profile(with_scalars.dump()));
    if (!device_.is_null() && device_ != line["device"])
      return Status::invalid_argument(
          "measured on another device than the lines before; a page is of one kind of device");
    const auto row = row_of(line, cases.front());
    if (!row) return Status::invalid_argument("a race without candidates");
    device_ = line["device"];
    const auto [place, is_new] = places_.try_emplace(item_json.dump(), rows_.size());
    if (is_new) {
      rows_.push_back(*row);
    } else {
      rows_[place->second] = *row;
    }
    return {};
  }

  Json device_;
  std::map<std::string, std::size_t> places_;  ///< of problems and shapes in `rows_`
  std::vector<Json> rows_;
};

}  // namespace

Expected<int> report_command(const Options& options) {
  const ReportFlags& flags = options.report;
  SACCADE_TRY(check_output("--output", flags.output, flags.logs));
  Page page;
  for (const std::string& path : flags.logs) SACCADE_TRY(page.add_file(path));
  if (page.is_empty()) return Status::invalid_argument("the logs hold no race");
  std::string data = page.document().dump(-1, ' ', false, Json::error_handler_t::replace);
  // Within a script element only "</" and "<!" could end the text; JSON has another way to write them.
  for (std::size_t at = 0; (at = data.find('<', at)) != std::string::npos;) data.replace(at, 1, "\\u003c");
  std::string html(report_page());
  constexpr std::string_view kPlace = "/*DATA*/";
  html.replace(html.find(kPlace), kPlace.size(), data);
  const std::span<const std::byte> piece = bytes_of(html);
  SACCADE_TRY(write_file(flags.output, std::span(&piece, 1)));
  if (options.json) {
    print_json({{"page", flags.output}, {"problems", page.size()}, {"bytes", html.size()}});
  } else {
    print_line(
        fmt::format("{}: {} problems, {}", flags.output, page.size(), human_bytes(static_cast<double>(html.size()))));
  }
  return kExitOk;
}

}  // namespace saccade::cli
