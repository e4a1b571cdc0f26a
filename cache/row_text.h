// Tuned rows as text: what packs are made of, and what git keeps and people review.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/store.h"

namespace saccade::cache {

/// One line of JSON for each row, sorted, so that equal sets of rows give equal bytes:
///   {"key":{"table":"tuned",...},"label":"...","provenance":{...},"schedule":{...}}
/// Fields of keys, provenance and schedules that hold canonical JSON objects stand as such, other text as strings. Rows whose key
/// is not that of a winner (its first field is "table", "tuned") are left out.
std::string text_of_rows(const std::vector<TunedRow>& rows);

/// The inverse; `layer` is empty. Blank lines are skipped. `invalid_argument` that names the line and what is wrong with it; at most
/// 64 MiB. What a schedule says is checked when it is used.
Expected<std::vector<TunedRow>> rows_of_text(std::string_view text);

}  // namespace saccade::cache
