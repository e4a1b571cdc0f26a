#include "cache/inspection.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <utility>

namespace saccade::cache {

Outcome count_rows(Database& database, LayerStatistics* statistics) {
  for (const Table table : kTables) {
    std::int64_t rows = 0, bytes = 0;
    const Outcome outcome = database.list(table, [&](const Database::Listed& listed) {
      ++rows;
      bytes += listed.bytes;
    });
    if (outcome != Outcome::ok) return outcome;
    switch (table) {
      case Table::binary:
        statistics->binaries = rows;
        statistics->binary_bytes = bytes;
        break;
      case Table::tuned: statistics->tuned = rows; break;
      case Table::rejected: statistics->rejected = rows; break;
    }
  }
  return Outcome::ok;
}

Outcome list_rows(Database& database, const std::string& layer, std::vector<Entry>* entries) {
  for (const Table table : kTables) {
    const Outcome outcome = database.list(table, [&](Database::Listed listed) {
      entries->push_back({name_of(table), layer, std::move(listed.label), listed.bytes, listed.last_used});
    });
    if (outcome != Outcome::ok) return outcome;
  }
  return Outcome::ok;
}

Outcome read_tuned_rows(Database& database, const std::string& layer, std::size_t most, std::vector<TunedRow>* rows) {
  std::size_t seen = 0;
  return database.read_all(Table::tuned, [&](bool well_formed, const std::string&, StoredRow stored) {
    if (seen++ >= most) return;
    Row row;
    std::string key;
    const std::int64_t created = stored.created;
    if (!well_formed || decode_any(Table::tuned, std::move(stored), &key, &row) != Decoded::ok) return;
    rows->push_back(
        {std::move(key), {std::move(row.content), std::move(row.details)}, std::move(row.label), layer, created});
  });
}

Outcome verify_rows(Database& database, const std::string& layer, const std::function<KeyHash(std::string_view)>& hash,
                    std::vector<std::string>* faults) {
  const Outcome structure =
      database.quick_check([&](const std::string& fault) { faults->push_back(fmt::format("{}: {}", layer, fault)); });
  if (structure != Outcome::ok) return structure;
  for (const Table table : kTables) {
    const Outcome outcome =
        database.read_all(table, [&](bool well_formed, const std::string& stored_hash, StoredRow stored) {
          const std::string label = stored.label;
          const auto report = [&](std::string_view fault) {
            faults->push_back(fmt::format("{}: {} row \"{}\" {}", layer, name_of(table), label, fault));
          };
          if (!well_formed) return report("has a column of the wrong type");
          Row row;
          std::string key;
          if (decode_any(table, std::move(stored), &key, &row) != Decoded::ok) return report("fails its checksum");
          const KeyHash expected = hash(key);
          if (stored_hash != std::string_view(reinterpret_cast<const char*>(expected.data()), expected.size()))
            report("is filed under the hash of another key");
        });
    if (outcome != Outcome::ok) return outcome;
  }
  return Outcome::ok;
}

std::int64_t file_bytes(const std::string& path) {
  std::int64_t bytes = 0;
  for (const char* suffix : {"", "-wal"}) {
    struct stat status{};
    if (stat((path + suffix).c_str(), &status) == 0) bytes += status.st_size;
  }
  return bytes;
}

}  // namespace saccade::cache
