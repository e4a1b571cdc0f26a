// Tuned rows as text: what packs are made of, and what git keeps and people review.
#pragma once

#include <cstdint>
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

/// When a row was measured, by the "date" of its provenance ("2026-11-30T12:00:00Z"), in Unix seconds; 0 when it does not say.
std::int64_t measured_at(const std::string& provenance);

/// One row of each key: the one measured last; of several from the same second, the one whose text is the greatest, so that the
/// order of the files does not matter.
std::vector<TunedRow> merged_rows(const std::vector<TunedRow>& rows);

/// What would change for whoever replaces `before` by `after`; of each key once, sorted by key.
struct RowChange {
  std::string key, label;
  const Tuned* before = nullptr;  ///< null: added
  const Tuned* after = nullptr;   ///< null: removed
};
/// Rows with the same schedule are no change. Points into the arguments, in each of which a key stands once.
std::vector<RowChange> changes_between(const std::vector<TunedRow>& before, const std::vector<TunedRow>& after);

}  // namespace saccade::cache
