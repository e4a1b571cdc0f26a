// saccade emit, saccade compile: the kernel of a problem as source and as binary, without running it.
#include <fmt/format.h>

#include <array>
#include <vector>

#include "cli/byte_source.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/workload.h"

namespace saccade::cli {
namespace {

struct BuildRow {
  Target target;
  Schedule schedule;
  Status status;
  Engine::Built built;
  std::int64_t shared_bytes = 0;
};

BuildRow build_row(Engine& engine, const EngineFlags& flags, const Workload& workload, const Target& target) {
  BuildRow row;
  row.target = target;
  auto schedule = choose_offline(flags, workload, target);
  row.status = schedule.status();
  if (!schedule.ok()) return row;
  row.schedule = *schedule;
  auto built = engine.build(workload.problem, target, row.schedule, !flags.no_cache);
  row.status = built.status();
  if (!built.ok()) return row;
  row.built = *std::move(built);
  const Family* const family = find_family(row.schedule.family);
  row.shared_bytes = row.built.binary.static_shared_bytes;
  if (target.kind == Target::Kind::cuda)
    row.shared_bytes += family->resources(workload.problem, target, row.schedule).shared_bytes;
  return row;
}

Json row_json(const BuildRow& row) {
  Json json = {{"target", row.target.arch}};
  if (!row.status.ok()) {
    json["error"] = {{"code", name_of(row.status.code())}, {"message", row.status.message()}};
    return json;
  }
  const CompiledBinary& binary = row.built.binary;
  json["schedule"] = parsed(to_json(row.schedule));
  json["binary_source"] = row.built.binary_source;
  json["code_bytes"] = binary.code.size();
  json["compile_ms"] = binary.compile_ms;
  if (row.target.kind == Target::Kind::cuda) {
    json["registers"] = binary.registers;
    json["spill_bytes"] = binary.spill_bytes;
    json["stack_bytes"] = binary.stack_bytes;
    json["shared_bytes"] = row.shared_bytes;
  }
  return json;
}

Text rows_text(const std::vector<BuildRow>& rows) {
  TextTable table({"target", "schedule", ">registers", ">spills", ">shared", ">code", ">time", "from"});
  for (const BuildRow& row : rows) {
    if (!row.status.ok()) {
      table.add({row.target.arch, coloured(Colour::red, row.status.message())});
      continue;
    }
    const CompiledBinary& binary = row.built.binary;
    const bool cuda = row.target.kind == Target::Kind::cuda;
    table.add({row.target.arch, fmt::format("{} ({})", row.schedule.family, schedule_text(row.schedule)),
               cuda ? fmt::format("{}", binary.registers) : "-",
               cuda ? human_bytes(static_cast<double>(binary.spill_bytes)) : "-",
               cuda ? human_bytes(static_cast<double>(row.shared_bytes)) : "-",
               human_bytes(static_cast<double>(binary.code.size())), fmt::format("{:.0f} ms", binary.compile_ms),
               row.built.binary_source});
  }
  return table.text();
}

std::vector<std::string> files_read(const Options& options) {
  std::vector<std::string> files = files_of(options.problem);
  files.push_back(options.engine.schedule);
  return files;
}

Expected<std::vector<Target>> targets(const Options& options) {
  std::vector<Target> result;
  if (!options.build.all_archs) {
    SACCADE_ASSIGN(const Target target, build_target(options.engine));
    result.push_back(target);
    return result;
  }
  for (const std::string& arch : known_cuda_archs()) {
    SACCADE_ASSIGN(const Target target, cuda_target(arch));
    result.push_back(target);
  }
  return result;
}

}  // namespace

Expected<int> emit_command(const Options& options) {
  SACCADE_TRY(check_output("--output", options.build.output, files_read(options)));
  SACCADE_ASSIGN(const Workload workload, workload_from_options(options.problem));
  SACCADE_ASSIGN(const Target target, build_target(options.engine));
  SACCADE_ASSIGN(const Schedule schedule, choose_offline(options.engine, workload, target));
  const std::string source = find_family(schedule.family)->emit(workload.problem, target, schedule);
  if (!options.build.output.empty()) {
    const std::array<std::span<const std::byte>, 1> pieces = {bytes_of(source)};
    SACCADE_TRY(write_file(options.build.output, pieces));
  }
  if (options.json) {
    Json document = {{"target", target.arch}, {"schedule", parsed(to_json(schedule))}};
    if (options.build.output.empty()) {
      document["source"] = source;
    } else {
      document["output"] = options.build.output;
    }
    print_json(document);
  } else if (options.build.output.empty()) {
    fmt::print(stdout, "{}", source);
  }
  return kExitOk;
}

Expected<int> compile_command(const Options& options) {
  if (options.build.all_archs && !options.build.binary_output.empty())
    return Status::invalid_argument("--output takes one binary: leave --all-archs out");
  SACCADE_TRY(check_output("--output", options.build.binary_output, files_read(options)));
  SACCADE_ASSIGN(const Workload workload, workload_from_options(options.problem));
  SACCADE_ASSIGN(const std::vector<Target> wanted, targets(options));
  SACCADE_ASSIGN(const auto engine, open_engine(options.engine));
  std::vector<BuildRow> rows;
  {
    Progress progress("compiling", static_cast<int>(wanted.size()), options.progress);
    for (const Target& target : wanted) {
      if (interrupted()) break;
      progress.step(static_cast<int>(rows.size()), target.arch);
      rows.push_back(build_row(*engine, options.engine, workload, target));
    }
  }
  engine->store().flush();
  if (rows.empty()) return Status(StatusCode::cancelled, "interrupted");
  if (rows.size() == 1 && !rows.front().status.ok()) return rows.front().status;
  if (!options.build.binary_output.empty()) {
    const std::array<std::span<const std::byte>, 1> pieces = {bytes_of(rows.front().built.binary.code)};
    SACCADE_TRY(write_file(options.build.binary_output, pieces));
  }
  if (options.json) {
    Json list = Json::array();
    for (const BuildRow& row : rows) list.push_back(row_json(row));
    print_json({{"problem", parsed(to_json(workload.problem))},
                {"shape", json_of(workload.shape, workload.problem)},
                {"binaries", list}});
  } else {
    print_line(describe(workload));
    print_line(rows_text(rows));
  }
  for (const BuildRow& row : rows)
    if (!row.status.ok()) return row.status.code() == StatusCode::unsupported ? kExitUnsupported : kExitFailure;
  return kExitOk;
}

}  // namespace saccade::cli
