// Counting, listing and verifying what a database holds.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/database.h"
#include "cache/store.h"

namespace saccade::cache {

Outcome count_rows(Database& database, LayerStatistics* statistics);
Outcome list_rows(Database& database, const std::string& layer, std::vector<Entry>* entries);
/// The tuned rows whose bytes are sound, of the first `most`.
Outcome read_tuned_rows(Database& database, const std::string& layer, std::size_t most, std::vector<TunedRow>* rows);
/// Reads everything; appends a line for each fault.
Outcome verify_rows(Database& database, const std::string& layer, const std::function<KeyHash(std::string_view)>& hash,
                    std::vector<std::string>* faults);
/// Of the database and its log; looked up, never opened: closing a descriptor of ours would drop SQLite's locks.
std::int64_t file_bytes(const std::string& path);

}  // namespace saccade::cache
