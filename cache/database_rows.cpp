// The statements of a connection: lookups, writes, eviction and scans.
#include <fmt/format.h>
#include <sqlite3.h>

#include <string_view>

#include "cache/database.h"
#include "cache/outcome.h"
#include "cache/sql.h"

namespace saccade::cache {
namespace {

/// Ends the statement's implicit transaction, whichever way its user returns.
class ResetAtEnd {
 public:
  explicit ResetAtEnd(sqlite3_stmt* statement) : statement_(statement) {}
  ~ResetAtEnd() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }
  ResetAtEnd(const ResetAtEnd&) = delete;
  ResetAtEnd& operator=(const ResetAtEnd&) = delete;

 private:
  sqlite3_stmt* statement_;
};

void bind_blob(sqlite3_stmt* statement, int index, std::string_view bytes) {
  // A null pointer would bind NULL; the caller keeps the bytes until the statement is reset.
  sqlite3_bind_blob64(statement, index, bytes.empty() ? "" : bytes.data(), bytes.size(), SQLITE_STATIC);
}

void bind_hash(sqlite3_stmt* statement, const KeyHash& hash) {
  bind_blob(statement, 1, {reinterpret_cast<const char*>(hash.data()), hash.size()});
}

/// The types are checked because the file may be anything, whatever its schema promises.
bool read_integer(sqlite3_stmt* statement, int column, std::int64_t* value) {
  if (sqlite3_column_type(statement, column) != SQLITE_INTEGER) return false;
  *value = sqlite3_column_int64(statement, column);
  return true;
}

bool read_bytes(sqlite3_stmt* statement, int column, int type, std::string* bytes) {
  if (sqlite3_column_type(statement, column) != type) return false;
  const void* data = sqlite3_column_blob(statement, column);
  const int size = sqlite3_column_bytes(statement, column);
  if (data == nullptr && size > 0) return false;  // out of memory
  bytes->assign(static_cast<const char*>(data), static_cast<std::size_t>(size));
  return true;
}

/// The columns of sql.h from `first` on.
bool read_row(sqlite3_stmt* statement, int first, StoredRow* row) {
  return read_bytes(statement, first, SQLITE_BLOB, &row->checksum) &&
         read_integer(statement, first + 1, &row->key_codec) && read_integer(statement, first + 2, &row->key_size) &&
         read_integer(statement, first + 3, &row->content_codec) &&
         read_integer(statement, first + 4, &row->content_size) && read_integer(statement, first + 5, &row->created) &&
         read_integer(statement, first + 6, &row->last_used) &&
         read_bytes(statement, first + 7, SQLITE_TEXT, &row->label) &&
         read_bytes(statement, first + 8, SQLITE_BLOB, &row->details) &&
         read_bytes(statement, first + 9, SQLITE_BLOB, &row->key) &&
         read_bytes(statement, first + 10, SQLITE_BLOB, &row->content);
}

}  // namespace

Outcome Database::prepare(Table table, Action action, sqlite3_stmt** statement) {
  const auto table_index = static_cast<std::size_t>(table);
  const auto action_index = static_cast<std::size_t>(action);
  auto& kept = statements_[table_index * kActions + action_index];
  if (kept == nullptr) {
    sqlite3_stmt* raw = nullptr;
    const int code = sqlite3_prepare_v3(connection_.get(), sql::kStatements[table_index][action_index], -1,
                                        SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
    kept.reset(raw);
    if (code != SQLITE_OK) return outcome_of(code);
  }
  *statement = kept.get();
  return Outcome::ok;
}

Outcome Database::run(sqlite3_stmt* statement) {
  const int code = sqlite3_step(statement);
  return code == SQLITE_DONE || code == SQLITE_ROW ? Outcome::ok : outcome_of(code);
}

Outcome Database::find(Table table, const KeyHash& hash, StoredRow* row) {
  sqlite3_stmt* statement = nullptr;
  if (const Outcome outcome = prepare(table, Action::find, &statement); outcome != Outcome::ok) return outcome;
  const ResetAtEnd reset(statement);
  bind_hash(statement, hash);
  const int code = sqlite3_step(statement);
  if (code == SQLITE_DONE) return Outcome::missing;
  if (code != SQLITE_ROW) return outcome_of(code);
  return read_row(statement, 0, row) ? Outcome::ok : Outcome::bad_row;
}

Outcome Database::begin() { return execute("BEGIN IMMEDIATE"); }
Outcome Database::commit() { return execute("COMMIT"); }

void Database::rollback() {
  // SQLite rolls back by itself after some errors; a second time would only be an error of its own.
  if (sqlite3_get_autocommit(connection_.get()) == 0) execute("ROLLBACK");
}

Outcome Database::put(Table table, const KeyHash& hash, const StoredRow& row) {
  sqlite3_stmt* statement = nullptr;
  if (const Outcome outcome = prepare(table, Action::put, &statement); outcome != Outcome::ok) return outcome;
  const ResetAtEnd reset(statement);
  bind_hash(statement, hash);
  bind_blob(statement, 2, row.checksum);
  sqlite3_bind_int64(statement, 3, row.key_codec);
  sqlite3_bind_int64(statement, 4, row.key_size);
  sqlite3_bind_int64(statement, 5, row.content_codec);
  sqlite3_bind_int64(statement, 6, row.content_size);
  sqlite3_bind_int64(statement, 7, row.created);
  sqlite3_bind_int64(statement, 8, row.last_used);
  sqlite3_bind_text64(statement, 9, row.label.data(), row.label.size(), SQLITE_STATIC, SQLITE_UTF8);
  bind_blob(statement, 10, row.details);
  bind_blob(statement, 11, row.key);
  bind_blob(statement, 12, row.content);
  return run(statement);
}

Outcome Database::touch(Table table, const KeyHash& hash, std::int64_t last_used) {
  sqlite3_stmt* statement = nullptr;
  if (const Outcome outcome = prepare(table, Action::touch, &statement); outcome != Outcome::ok) return outcome;
  const ResetAtEnd reset(statement);
  bind_hash(statement, hash);
  sqlite3_bind_int64(statement, 2, last_used);
  return run(statement);
}

Outcome Database::live_bytes(std::int64_t* bytes) {
  std::int64_t pages = 0, free_pages = 0, page_bytes = 0;
  if (const Outcome outcome = query_integer("PRAGMA page_count", &pages); outcome != Outcome::ok) return outcome;
  if (const Outcome outcome = query_integer("PRAGMA freelist_count", &free_pages); outcome != Outcome::ok)
    return outcome;
  if (const Outcome outcome = query_integer("PRAGMA page_size", &page_bytes); outcome != Outcome::ok) return outcome;
  *bytes = (pages - free_pages) * page_bytes;
  return Outcome::ok;
}

Outcome Database::evict_some(Table table, std::int64_t bytes, std::int64_t* deleted) {
  *deleted = 0;
  sqlite3_stmt* candidates = nullptr;
  sqlite3_stmt* evict = nullptr;
  if (const Outcome outcome = prepare(table, Action::evict_candidates, &candidates); outcome != Outcome::ok)
    return outcome;
  if (const Outcome outcome = prepare(table, Action::evict, &evict); outcome != Outcome::ok) return outcome;
  std::vector<std::int64_t> oldest;
  {
    const ResetAtEnd reset(candidates);
    int code = SQLITE_OK;
    while (bytes > 0 && (code = sqlite3_step(candidates)) == SQLITE_ROW) {
      oldest.push_back(sqlite3_column_int64(candidates, 0));
      bytes -= sqlite3_column_int64(candidates, 1);
    }
    if (code != SQLITE_ROW && code != SQLITE_DONE && code != SQLITE_OK) return outcome_of(code);
  }
  for (const std::int64_t id : oldest) {
    const ResetAtEnd reset(evict);
    sqlite3_bind_int64(evict, 1, id);
    if (const Outcome outcome = run(evict); outcome != Outcome::ok) return outcome;
    ++*deleted;
  }
  return Outcome::ok;
}

Outcome Database::shrink() { return execute("PRAGMA incremental_vacuum"); }

Outcome Database::row_limit(std::int64_t* rows) {
  std::int64_t pages = 0, page_bytes = 0;
  if (const Outcome outcome = query_integer("PRAGMA page_count", &pages); outcome != Outcome::ok) return outcome;
  if (const Outcome outcome = query_integer("PRAGMA page_size", &page_bytes); outcome != Outcome::ok) return outcome;
  constexpr std::int64_t kSmallestRow = 64;  // hash and checksum alone are 52 bytes
  *rows = pages * page_bytes / kSmallestRow;
  return Outcome::ok;
}

Outcome Database::list(Table table, const std::function<void(Listed)>& visit) {
  sqlite3_stmt* statement = nullptr;
  std::int64_t limit = 0;
  if (const Outcome outcome = row_limit(&limit); outcome != Outcome::ok) return outcome;
  if (const Outcome outcome = prepare(table, Action::list, &statement); outcome != Outcome::ok) return outcome;
  const ResetAtEnd reset(statement);
  int code = SQLITE_OK;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
    // A damaged tree can lead through the same pages again and again.
    if (limit-- == 0) return Outcome::corrupt;
    Listed listed;
    if (read_bytes(statement, 0, SQLITE_TEXT, &listed.label) && read_integer(statement, 1, &listed.bytes) &&
        read_integer(statement, 2, &listed.last_used))
      visit(std::move(listed));
  }
  return outcome_of(code);
}

Outcome Database::read_all(Table table, const std::function<void(bool, std::string, StoredRow)>& visit) {
  sqlite3_stmt* statement = nullptr;
  std::int64_t limit = 0;
  if (const Outcome outcome = row_limit(&limit); outcome != Outcome::ok) return outcome;
  if (const Outcome outcome = prepare(table, Action::read_all, &statement); outcome != Outcome::ok) return outcome;
  const ResetAtEnd reset(statement);
  int code = SQLITE_OK;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
    if (limit-- == 0) return Outcome::corrupt;
    std::string hash;
    StoredRow row;
    const bool well_formed = read_bytes(statement, 0, SQLITE_BLOB, &hash) && read_row(statement, 1, &row);
    visit(well_formed, std::move(hash), std::move(row));
  }
  return outcome_of(code);
}

Outcome Database::quick_check(const std::function<void(std::string)>& fault) {
  sqlite3_stmt* raw = nullptr;
  int code = sqlite3_prepare_v2(connection_.get(), "PRAGMA quick_check(16)", -1, &raw, nullptr);
  const std::unique_ptr<sqlite3_stmt, Finalize> statement(raw);
  if (code != SQLITE_OK) return outcome_of(code);
  while ((code = sqlite3_step(raw)) == SQLITE_ROW) {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(raw, 0));
    if (text != nullptr && std::string_view(text) != "ok") fault(text);
  }
  return outcome_of(code);
}

}  // namespace saccade::cache
