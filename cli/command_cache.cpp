// saccade cache stat | ls | verify | trim | export | import.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/row_text.h"
#include "cli/byte_source.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/session.h"

namespace saccade::cli {
namespace {

Expected<std::int64_t> size_from_text(const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto value = number_from<std::int64_t>(std::string_view(text).substr(0, digits));
  const std::string_view unit = std::string_view(text).substr(digits);
  int shift = -1;
  if (unit.empty()) shift = 0;
  if (unit == "K" || unit == "k" || unit == "KiB") shift = 10;
  if (unit == "M" || unit == "MiB") shift = 20;
  if (unit == "G" || unit == "GiB") shift = 30;
  if (!value || shift < 0 || *value > (std::numeric_limits<std::int64_t>::max() >> shift))
    return Status::invalid_argument(fmt::format("--max-size {}: write bytes, or a number with K, M or G", text));
  return *value << shift;
}

/// By an engine: these commands open the store to read.
bool is_writable(cache::Store& store, const cache::LayerStatistics& layer) {
  return layer.writable ||
         (!layer.path.empty() && layer.path == store.user_path() && access(layer.path.c_str(), W_OK) == 0);
}

int print_statistics(cache::Store& store, bool json) {
  const auto layers = store.statistics();
  if (json) {
    Json list = Json::array();
    for (const auto& layer : layers)
      list.push_back({{"path", layer.path},
                      {"writable", is_writable(store, layer)},
                      {"binaries", layer.binaries},
                      {"binary_bytes", layer.binary_bytes},
                      {"tuned", layer.tuned},
                      {"rejected", layer.rejected},
                      {"file_bytes", layer.file_bytes}});
    print_json({{"layers", list}});
    return kExitOk;
  }
  TextTable table({"layer", "mode", ">binaries", ">size", ">tuned", ">rejected", ">file"});
  for (const auto& layer : layers)
    table.add({layer.path.empty() ? "memory" : layer.path, is_writable(store, layer) ? "read-write" : "read-only",
               fmt::format("{}", layer.binaries), human_bytes(static_cast<double>(layer.binary_bytes)),
               fmt::format("{}", layer.tuned), fmt::format("{}", layer.rejected),
               human_bytes(static_cast<double>(layer.file_bytes))});
  print_line(table.text());
  return kExitOk;
}

std::string date_text(std::int64_t unix_seconds) {
  constexpr std::int64_t kYear10000 = 253402300800;  // a damaged row may say anything
  const bool is_date = unix_seconds > 0 && unix_seconds < kYear10000;
  return is_date ? fmt::format("{:%Y-%m-%d %H:%M}", fmt::gmtime(static_cast<std::time_t>(unix_seconds))) : "-";
}

int print_entries(cache::Store& store, bool json) {
  const auto entries = store.list();
  if (json) {
    Json list = Json::array();
    for (const auto& entry : entries)
      list.push_back({{"table", entry.table},
                      {"layer", entry.layer},
                      {"label", entry.label},
                      {"bytes", entry.bytes},
                      {"last_used", entry.last_used}});
    print_json({{"entries", list}});
    return kExitOk;
  }
  TextTable table({"table", ">size", "last used (UTC)", "what"});
  for (const auto& entry : entries)
    table.add({entry.table, human_bytes(static_cast<double>(entry.bytes)), date_text(entry.last_used), entry.label});
  print_line(table.text());
  return kExitOk;
}

int print_verification(cache::Store& store, bool json) {
  const auto faults = store.verify();
  if (json) {
    print_json({{"ok", faults.empty()}, {"faults", faults}});
  } else {
    for (const std::string& fault : faults) print_line(fault);
    print_line(faults.empty() ? coloured(Colour::green, "every row is sound")
                              : coloured(Colour::red, fmt::format("{} faults", faults.size())));
  }
  return faults.empty() ? kExitOk : kExitVerification;
}

Expected<int> trim(cache::Store& store, const Options& options) {
  SACCADE_ASSIGN(const std::int64_t max_bytes, size_from_text(options.cache.max_size));
  SACCADE_ASSIGN(const std::int64_t freed, store.trim(max_bytes));
  if (options.json) {
    print_json({{"freed_bytes", freed}});
  } else {
    print_line(fmt::format("{} freed", human_bytes(static_cast<double>(freed))));
  }
  return kExitOk;
}

Expected<int> export_rows(cache::Store& store, const Options& options) {
  SACCADE_ASSIGN(const std::vector<cache::TunedRow> found, store.tuned_rows(cache::Unreadable::fails, cache::kAllRows));
  const std::string text = cache::text_of_rows(found);
  const auto rows = std::count(text.begin(), text.end(), '\n');
  const std::span<const std::byte> piece = std::as_bytes(std::span(text));
  SACCADE_TRY(write_file(options.cache.files.front(), std::span(&piece, 1)));
  if (options.json) {
    print_json({{"rows", rows}, {"bytes", text.size()}});
  } else {
    print_line(fmt::format("{} tuned schedules, {}", rows, human_bytes(static_cast<double>(text.size()))));
  }
  return kExitOk;
}

/// All files are read before anything is put.
Expected<int> import_rows(cache::Store& store, const Options& options) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;
  SACCADE_TRY(check_writable(store));
  std::vector<cache::TunedRow> rows;
  for (const std::string& path : options.cache.files) {
    SACCADE_ASSIGN(const std::string text, read_text_file(path, kMaxBytes));
    auto read = cache::rows_of_text(text);
    if (!read.ok()) return Status::invalid_argument(fmt::format("{}: {}", path, read.status().message()));
    std::move(read->begin(), read->end(), std::back_inserter(rows));
  }
  rows = cache::merged_rows(rows);
  constexpr int kTogether = 1000;  // the queue of writes holds a few thousand
  int added = 0, replaced = 0, kept = 0;
  std::set<std::string> put;
  for (cache::TunedRow& row : rows) {
    const std::optional<cache::Tuned> there = store.find_tuned(row.key);
    if (there && !options.cache.replace) {
      ++kept;
      continue;
    }
    ++(there ? replaced : added);
    store.put_tuned(row.key, std::move(row.tuned), row.label);
    put.insert(row.key);
    if ((added + replaced) % kTogether == 0) store.flush();
  }
  SACCADE_ASSIGN(const std::vector<cache::TunedRow> there_now,
                 store.tuned_rows(cache::Unreadable::fails, cache::kAllRows));
  for (const cache::TunedRow& row : there_now) put.erase(row.key);
  if (!put.empty()) return Status::io_error(fmt::format("{} of {} rows could not be written", put.size(), rows.size()));
  if (options.json) {
    print_json({{"added", added}, {"replaced", replaced}, {"kept", kept}});
  } else {
    print_line(fmt::format("{} added, {} replaced, {} left as they were", added, replaced, kept));
  }
  return kExitOk;
}

}  // namespace

Expected<int> cache_command(const Options& options) {
  for (const char* action : {"merge", "diff", "pack", "keygen", "sign"})
    if (options.cache.action == action) return pack_command(options);
  cache::Options store_options;
  store_options.directory = options.engine.cache_dir;
  store_options.packs = options.cache.packs;
  store_options.read_only = options.cache.action != "trim" && options.cache.action != "import";
  const auto store = cache::Store::open(store_options);
  if (options.cache.action == "stat") return print_statistics(*store, options.json);
  if (options.cache.action == "ls") return print_entries(*store, options.json);
  if (options.cache.action == "verify") return print_verification(*store, options.json);
  if (options.cache.action == "export") return export_rows(*store, options);
  if (options.cache.action == "import") return import_rows(*store, options);
  return trim(*store, options);
}

}  // namespace saccade::cli
