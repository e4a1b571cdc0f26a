// saccade cache merge | diff | pack | keygen | sign: packs, from the text that git keeps to the signed file that hosts open.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/together.h"
#include "cache/pack_writer.h"
#include "cache/row_text.h"
#include "cache/signature.h"
#include "cli/byte_source.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "generator/json.h"

namespace saccade::cli {
namespace {

constexpr std::uint64_t kMaxRowsBytes = std::uint64_t{64} << 20, kMaxKeyBytes = 4096;

Expected<std::vector<cache::TunedRow>> rows_of_file(const std::string& path) {
  SACCADE_ASSIGN(const std::string text, read_text_file(path, kMaxRowsBytes));
  auto rows = cache::rows_of_text(text);
  if (!rows.ok()) return Status::invalid_argument(fmt::format("{}: {}", path, rows.status().message()));
  return rows;
}

Expected<std::vector<cache::TunedRow>> rows_of_files(const std::vector<std::string>& paths) {
  std::vector<cache::TunedRow> rows;
  for (const std::string& path : paths) {
    SACCADE_ASSIGN(auto read, rows_of_file(path));
    std::move(read.begin(), read.end(), std::back_inserter(rows));
  }
  return cache::merged_rows(rows);
}

Status write_text(const std::string& path, const std::string& text) {
  const std::span<const std::byte> piece = bytes_of(text);
  return write_file(path, std::span(&piece, 1));
}

Expected<int> merge(const CacheOptions& options, bool json) {
  SACCADE_ASSIGN(const std::vector<cache::TunedRow> rows, rows_of_files(options.files));
  const std::string text = cache::text_of_rows(rows);
  SACCADE_TRY(write_text(options.output, text));
  if (json) {
    print_json({{"rows", rows.size()}, {"bytes", text.size()}});
  } else {
    print_line(fmt::format("{} tuned schedules, {}", rows.size(), human_bytes(static_cast<double>(text.size()))));
  }
  return kExitOk;
}

/// "family k 1, n 2", or what stands there when it is no schedule.
std::string words_of(const cache::Tuned* tuned) {
  if (tuned == nullptr) return "none";
  const auto schedule = schedule_from_json(tuned->schedule);
  return schedule.ok() ? fmt::format("{} {}", schedule->family, schedule_text(*schedule)) : tuned->schedule;
}

std::string sizes_of(const std::string& key) {
  std::string text;
  for (const cache::KeyField& field : cache::fields_of(key).value_or(std::vector<cache::KeyField>{}))
    if (field.is_number && field.number != 0 && field.name != "measurement" && field.name != "family version")
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", field.name, field.number);
  return text;
}

/// Exit code 0 also when there are differences: they are the answer, not a failure.
Expected<int> diff(const CacheOptions& options, bool json) {
  SACCADE_ASSIGN(auto read_before, rows_of_file(options.files[0]));
  SACCADE_ASSIGN(auto read_after, rows_of_file(options.files[1]));
  const auto before = cache::merged_rows(read_before), after = cache::merged_rows(read_after);
  const std::vector<cache::RowChange> changes = cache::changes_between(before, after);
  if (json) {
    Json list = Json::array();
    for (const cache::RowChange& change : changes) {
      const auto value = [](const cache::Tuned* tuned) {
        return tuned == nullptr ? Json() : Json(parsed(tuned->schedule));
      };
      list.push_back({{"label", change.label},
                      {"sizes", sizes_of(change.key)},
                      {"before", value(change.before)},
                      {"after", value(change.after)}});
    }
    print_json({{"before", before.size()}, {"after", after.size()}, {"changes", list}});
    return kExitOk;
  }
  for (const cache::RowChange& change : changes)
    print_line(fmt::format("{}\n  {}\n  - {}\n  + {}", change.label, sizes_of(change.key), words_of(change.before),
                           words_of(change.after)));
  print_line(fmt::format("{} differ; {} rows before, {} after", changes.size(), before.size(), after.size()));
  return kExitOk;
}

/// A kernel that rows of a pack ask for.
struct Wanted {
  Problem problem;
  Target target;
  Schedule schedule;
  std::string label;
};

/// Nothing for a row of a CPU, whose features its code depends on. Errors: what hosts would leave out.
Expected<std::optional<Wanted>> wanted_of(const cache::TunedRow& row) {
  SACCADE_ASSIGN(const TunedKeyParts parts, read_tuned_key(row.key));
  SACCADE_ASSIGN(const Schedule schedule, schedule_from_json(row.tuned.schedule));
  if (!parts.target) return std::optional<Wanted>();
  SACCADE_TRY(parts.family->legal(parts.problem, *parts.target, parts.shape, schedule));
  return std::optional(Wanted{parts.problem, *parts.target, schedule, row.label});
}

/// Of rows that hosts would all take.
Expected<std::vector<Wanted>> distinct_kernels(const std::vector<cache::TunedRow>& rows) {
  std::vector<Wanted> kernels;
  std::set<std::string> seen;
  for (const cache::TunedRow& row : rows) {
    auto wanted = wanted_of(row);
    if (!wanted.ok())
      return Status::invalid_argument(
          fmt::format("no host would take the row \"{}\": {}", row.label, wanted.status().message()));
    if (*wanted &&
        seen.insert(to_json((*wanted)->problem) + (*wanted)->target.arch + to_json((*wanted)->schedule)).second)
      kernels.push_back(**std::move(wanted));
  }
  return kernels;
}

struct BuiltKernel {
  std::string key;
  cache::Binary binary;
};

/// One kernel, from the cache or compiled.
Expected<BuiltKernel> build(Engine& engine, const Wanted& wanted) {
  SACCADE_ASSIGN(const auto built, engine.build(wanted.problem, wanted.target, wanted.schedule, /*use_cache=*/true));
  SACCADE_ASSIGN(const Compiler* const compiler, compiler_for(wanted.target.kind));
  auto binary = engine.store().find_binary(binary_key(built.source, wanted.target, *compiler));
  if (!binary) return Status::internal("a kernel that was just built is not in memory");
  return BuiltKernel{pack_binary_key(built.source, wanted.target), *std::move(binary)};
}

/// All kernels, on as many threads as there are cores, in their order.
Expected<std::vector<BuiltKernel>> build_all(Engine& engine, const std::vector<Wanted>& kernels, Progress& progress) {
  std::vector<BuiltKernel> results(kernels.size());
  std::atomic<std::size_t> next{0};
  std::atomic<int> done{0};
  std::mutex mutex;
  Status failure;
  const auto work = [&] {
    for (std::size_t i = next++; i < kernels.size() && !interrupted(); i = next++) {
      auto built = build(engine, kernels[i]);
      const std::lock_guard lock(mutex);
      progress.step(++done, kernels[i].label);
      if (built.ok()) {
        results[i] = std::move(built).value();
      } else if (failure.ok()) {
        failure = {built.status().code(), fmt::format("{}: {}", kernels[i].label, built.status().message())};
      }
    }
  };
  work_together(std::thread::hardware_concurrency(), work);
  if (interrupted()) return Status{StatusCode::cancelled, "interrupted; no pack was written"};
  if (!failure.ok()) return failure;
  return results;
}

Expected<int> pack(const Options& options) {
  const CacheOptions& flags = options.cache;
  SACCADE_TRY(check_output("--output", flags.output, flags.files));
  SACCADE_ASSIGN(const std::vector<cache::TunedRow> rows, rows_of_files(flags.files));
  if (rows.empty()) return Status::invalid_argument("no rows: a pack of nothing is not made");
  SACCADE_ASSIGN(const std::vector<Wanted> kernels, distinct_kernels(rows));
  std::vector<BuiltKernel> built;
  if (flags.binaries) {
    // Of this machine's compiler, not of some other pack.
    SACCADE_ASSIGN(const std::shared_ptr<Engine> engine, open_engine(options.engine, /*finds_packs=*/false));
    Progress progress("compiling", static_cast<int>(kernels.size()), options.progress);
    SACCADE_ASSIGN(built, build_all(*engine, kernels, progress));
    progress.clear();
  }
  SACCADE_ASSIGN(const auto writer, cache::PackWriter::create(flags.output));
  for (const cache::TunedRow& row : rows) SACCADE_TRY(writer->add_tuned(row));
  for (std::size_t i = 0; i < built.size(); ++i)
    SACCADE_TRY(writer->add_binary(built[i].key, built[i].binary, kernels[i].label));
  SACCADE_TRY(writer->finish());
  if (const std::string signature = flags.output + ".sig"; access(signature.c_str(), F_OK) == 0)
    log::warn_once(
        fmt::format("{} is of the pack that was there before, if that was another: sign this one again", signature));
  if (options.json) {
    print_json({{"pack", flags.output}, {"rows", rows.size()}, {"binaries", built.size()}});
  } else {
    print_line(fmt::format("{}: {} tuned schedules, {} kernels", flags.output, rows.size(), built.size()));
  }
  return kExitOk;
}

/// A new file; never over one that is there.
Status write_new(const std::string& path, const std::string& text, mode_t mode) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (descriptor < 0) return Status::io_error(fmt::format("{} cannot be made ({})", path, std::strerror(errno)));
  const bool whole = write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool kept = fsync(descriptor) == 0;
  close(descriptor);
  if (whole && kept) return {};
  unlink(path.c_str());
  return Status::io_error(fmt::format("{} cannot be written", path));
}

Expected<int> keygen(const CacheOptions& options, bool json) {
  const std::string& name = options.files.front();
  const cache::KeyPair pair = cache::make_key_pair(name.substr(name.rfind('/') + 1));
  SACCADE_TRY(write_new(name + ".key", pair.secret_line, 0600));
  if (Status status = write_new(name + ".pub", pair.public_line, 0644); !status.ok()) {
    unlink((name + ".key").c_str());  // made a moment ago, and of no use alone
    return status;
  }
  if (json) {
    print_json({{"secret", name + ".key"}, {"public", name + ".pub"}});
  } else {
    print_line(
        fmt::format("{0}.key signs packs: keep it secret. Hosts that trust it have the line of {0}.pub in "
                    "/etc/saccade/trusted-keys, or in the file that SACCADE_TRUSTED_KEYS names.",
                    name));
  }
  return kExitOk;
}

/// By its first bytes, before anything is signed.
Status check_is_database(const std::string& path) {
  constexpr std::string_view kMagic = "SQLite format 3";
  std::array<char, kMagic.size()> found{};
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status::io_error(fmt::format("{} cannot be read", path));
  if (file.read(found.data(), found.size()) && std::string_view(found.data(), found.size()) == kMagic) return {};
  return Status::invalid_argument(fmt::format("{} is no pack; `saccade cache pack` makes one of rows", path));
}

Expected<int> sign(const CacheOptions& options, bool json) {
  SACCADE_ASSIGN(const std::string secret, read_text_file(options.key, kMaxKeyBytes));
  for (const std::string& file : options.files) SACCADE_TRY(check_is_database(file));
  for (const std::string& file : options.files) {
    if (const Status status = cache::sign_file(file, secret); !status.ok())
      return Status(
          status.code(),
          fmt::format("{}: {}", status.code() == StatusCode::invalid_argument ? options.key : file, status.message()));
    if (!json) print_line(fmt::format("{0}.sig", file));
  }
  if (json) print_json({{"signed", options.files}});
  return kExitOk;
}

}  // namespace

Expected<int> pack_command(const Options& options) {
  const std::string& action = options.cache.action;
  if (action == "merge") return merge(options.cache, options.json);
  if (action == "diff") return diff(options.cache, options.json);
  if (action == "keygen") return keygen(options.cache, options.json);
  if (action == "sign") return sign(options.cache, options.json);
  return pack(options);
}

}  // namespace saccade::cli
