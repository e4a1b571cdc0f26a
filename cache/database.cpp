// Opening: connection, hardening, identity and schema of the file. The statements are in database_rows.cpp.
#include "cache/database.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <thread>

#include "cache/outcome.h"
#include "cache/signal_guard.h"
#include "cache/sql.h"

namespace saccade::cache {
namespace {

/// A file: URI, the only way to say immutable=1. `path` is absolute or relative, in any bytes.
std::string immutable_uri(const std::string& path) {
  std::string uri = path.starts_with('/') ? "file://" : "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#')
      uri += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    else
      uri.push_back(c);
  }
  return uri + "?mode=ro&immutable=1";
}

/// Whether `path` is there and no regular file. SQLite would wait for the other end of a pipe for ever.
bool is_irregular(const std::string& path) {
  struct stat status{};
  return lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

/// The same for the database and the files that SQLite keeps beside it.
bool has_irregular_file(const std::string& path) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal"})
    if (is_irregular(path + suffix)) return true;
  return false;
}

bool has_writable_folder(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  return faccessat(AT_FDCWD, folder.empty() ? "." : folder.c_str(), W_OK, AT_EACCESS) == 0;
}

/// Whether the database is in use, or was left by a process that died: then what is committed may not all be in the file.
bool has_open_log(const std::string& path) {
  struct stat status{};
  if (lstat((path + "-shm").c_str(), &status) == 0) return true;
  for (const char* suffix : {"-wal", "-journal"})
    if (lstat((path + suffix).c_str(), &status) == 0 && status.st_size > 0) return true;
  return false;
}

/// As `asked`, or immutable: reading a database in WAL mode makes side files, which a folder that cannot be written
/// does not allow.
Access access_for(const std::string& path, Access asked) {
  const bool for_reading = asked == Access::read || asked == Access::read_only;
  return for_reading && !has_open_log(path) && !has_writable_folder(path) ? Access::immutable : asked;
}

}  // namespace

const char* describe(Outcome outcome) {
  switch (outcome) {
    case Outcome::ok: return "is well";
    case Outcome::missing: return "is missing";
    case Outcome::empty: return "is empty";
    case Outcome::busy:
      return "is locked by another process; until it is free, lookups may miss and new entries are not kept";
    case Outcome::full: return "cannot grow, the disk is full; new entries are not kept";
    case Outcome::read_only: return "cannot be written; new entries are not kept";
    case Outcome::io_error: return "cannot be read or written; lookups miss and new entries are not kept";
    case Outcome::corrupt: return "is damaged or no database";
    case Outcome::foreign: return "is another program's database and is left alone";
    case Outcome::newer: return "was written by a newer version and is left alone";
    case Outcome::no_file:
      return "is no regular file, or its -wal, -shm or -journal is none, and is left alone; remove what lies there";
    case Outcome::needs_recovery:
      return "was not closed well, and its folder cannot be written to mend that; use it once where it can";
    case Outcome::replaced: return "is not the file any more that was checked, and is not read";
    case Outcome::bad_row: return "has damaged rows, which are ignored";
    case Outcome::failed: break;
  }
  return "cannot be used";
}

Outcome outcome_of(int code) {
  switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE: return Outcome::ok;
    // "Locking protocol" is what WAL reports when the shared-memory locks of a network file system misbehave.
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL: return Outcome::busy;
    case SQLITE_FULL: return Outcome::full;
    case SQLITE_READONLY:
    case SQLITE_PERM: return Outcome::read_only;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN: return Outcome::io_error;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT: return Outcome::corrupt;
    default: return Outcome::failed;
  }
}

void Database::CloseConnection::operator()(sqlite3* connection) const {
  const FileSizeSignalBlocked blocked;  // the last connection writes the log back
  sqlite3_close(connection);
}

void Database::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Database::~Database() {
  for (auto& statement : statements_) statement.reset();  // before the connection that they belong to
}

int Database::wait_for_lock(void* self, int attempt) {
  const Deadline deadline = static_cast<Database*>(self)->deadline_;
  const auto now = std::chrono::steady_clock::now();
  if (now >= deadline) return 0;
  // SQLite's own handler backs off to 100 ms, too coarse for a limit of 250 ms.
  const std::chrono::microseconds pause{std::min(200 * (attempt + 1), 5000)};
  std::this_thread::sleep_for(std::min<std::chrono::steady_clock::duration>(pause, deadline - now));
  return 1;
}

Outcome Database::connect(const std::string& path, Access access) {
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_PRIVATECACHE;
  std::string name = path;
  if (access == Access::immutable) {
    flags |= SQLITE_OPEN_READONLY | SQLITE_OPEN_URI;
    name = immutable_uri(path);
  } else {
    flags |= SQLITE_OPEN_NOFOLLOW | (access == Access::read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE);
  }
  sqlite3* connection = nullptr;
  const int code = sqlite3_open_v2(name.c_str(), &connection, flags, nullptr);
  connection_.reset(connection);
  if (code != SQLITE_OK) return outcome_of(code);
  sqlite3_busy_handler(connection, &Database::wait_for_lock, this);
  return harden();
}

Outcome Database::harden() {
  sqlite3* const connection = connection_.get();
  sqlite3_db_config(connection, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(connection, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(connection, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(connection, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(connection, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, nullptr);
  sqlite3_limit(connection, SQLITE_LIMIT_LENGTH, static_cast<int>(2 * kMaximumBlobBytes));
  sqlite3_limit(connection, SQLITE_LIMIT_ATTACHED, 0);
  // secure_delete is on in Debian's build; there are no secrets here, and it doubles what eviction writes.
  return execute(
      "PRAGMA cell_size_check=ON; PRAGMA mmap_size=0; PRAGMA synchronous=NORMAL; PRAGMA secure_delete=OFF;"
      "PRAGMA journal_size_limit=8388608; PRAGMA temp_store=MEMORY");
}

Outcome Database::examine_schema(bool* has_tables) {
  sqlite3_stmt* raw = nullptr;
  const int code =
      sqlite3_prepare_v2(connection_.get(), "SELECT type, name, sql FROM sqlite_schema", -1, &raw, nullptr);
  const std::unique_ptr<sqlite3_stmt, Finalize> statement(raw);
  if (code != SQLITE_OK) return outcome_of(code);
  std::size_t ours = 0, others = 0;
  int step = SQLITE_OK;
  while ((step = sqlite3_step(raw)) == SQLITE_ROW) {
    const auto text = [raw](int column) {
      const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(raw, column));
      return bytes == nullptr ? std::string_view() : std::string_view(bytes);
    };
    if (std::find(sql::kCreate.begin(), sql::kCreate.end(), text(2)) != sql::kCreate.end())
      ++ours;
    else if ((text(0) != "index" || !text(1).starts_with("sqlite_autoindex_")) &&
             (text(0) != "table" || !text(1).starts_with("sqlite_stat")))
      ++others;
  }
  if (step != SQLITE_DONE) return outcome_of(step);
  *has_tables = ours + others > 0;
  // Anything else, such as a view in the place of a table, could make a plain lookup run for ever.
  return !*has_tables || (ours == sql::kCreate.size() && others == 0) ? Outcome::ok : Outcome::corrupt;
}

Outcome Database::examine() {
  std::int64_t application = 0, version = 0;
  if (const Outcome outcome = query_integer("PRAGMA application_id", &application); outcome != Outcome::ok)
    return outcome;
  if (const Outcome outcome = query_integer("PRAGMA user_version", &version); outcome != Outcome::ok) return outcome;
  if (application == kApplicationId && version > kSchemaVersion) return Outcome::newer;
  bool has_tables = false;
  const Outcome schema = examine_schema(&has_tables);
  if (application == 0 && version == 0 && schema == Outcome::ok && !has_tables) return Outcome::empty;
  if (application != kApplicationId)
    return schema == Outcome::ok || schema == Outcome::corrupt ? Outcome::foreign : schema;
  if (schema != Outcome::ok) return schema;
  return version == kSchemaVersion && has_tables ? Outcome::ok : Outcome::corrupt;
}

Outcome Database::open(const std::string& path, Access access, Deadline deadline, std::unique_ptr<Database>* database) {
  const FileSizeSignalBlocked blocked;
  struct stat status{};
  if (access != Access::immutable && has_irregular_file(path)) return Outcome::no_file;
  if (stat(path.c_str(), &status) != 0) return errno == ENOENT ? Outcome::missing : Outcome::io_error;
  // SQLite takes a file of no bytes for a new database.
  if (access == Access::immutable && status.st_size < 512) return Outcome::corrupt;
  std::unique_ptr<Database> opened(new Database);
  opened->set_deadline(deadline);
  Outcome outcome = opened->connect(path, access_for(path, access));
  if (outcome == Outcome::ok) {
    outcome = opened->examine();
    if (outcome != Outcome::ok) opened->skip_checkpoint_on_close();  // what is not ours to use is not ours to change
  }
  const bool unreadable = outcome == Outcome::io_error || outcome == Outcome::read_only;
  if (unreadable && access != Access::immutable && has_open_log(path) && !has_writable_folder(path))
    return Outcome::needs_recovery;
  if (outcome == Outcome::ok && access == Access::read) outcome = opened->execute("PRAGMA query_only=ON");
  if (outcome != Outcome::ok) return outcome;
  *database = std::move(opened);
  return Outcome::ok;
}

Outcome Database::create(const std::string& path, bool use_wal, Deadline deadline) {
  const FileSizeSignalBlocked blocked;
  if (has_irregular_file(path)) return Outcome::no_file;
  Database fresh;
  fresh.set_deadline(deadline);
  sqlite3* connection = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX |
                    SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_PRIVATECACHE;
  const int code = sqlite3_open_v2(path.c_str(), &connection, flags, nullptr);
  fresh.connection_.reset(connection);
  if (code != SQLITE_OK) return outcome_of(code);
  sqlite3_busy_handler(connection, &Database::wait_for_lock, &fresh);
  // Not synced: four fsyncs took 60 ms of a cold start. A loss of power now leaves at worst a damaged file without
  // rows, which the next process sets aside; the first checkpoint syncs all of it.
  std::string script = "PRAGMA synchronous=OFF; PRAGMA page_size=8192; PRAGMA auto_vacuum=INCREMENTAL;";
  script += use_wal ? "PRAGMA journal_mode=WAL;" : "PRAGMA journal_mode=DELETE;";
  script += "BEGIN IMMEDIATE;";
  for (const char* table : sql::kCreate) script += fmt::format("{};", table);
  // In the same transaction as the tables: a crash leaves either an empty database or a whole one.
  script += fmt::format("PRAGMA application_id={}; PRAGMA user_version={}; COMMIT;", kApplicationId, kSchemaVersion);
  return fresh.execute(script.c_str());
}

void Database::skip_checkpoint_on_close() {
  sqlite3_db_config(connection_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
}

bool Database::is_read_only() const { return sqlite3_db_readonly(connection_.get(), "main") != 0; }

std::string Database::last_error() const {
  const char* text = sqlite3_errmsg(connection_.get());
  return text == nullptr ? std::string() : std::string(text);
}

Outcome Database::execute(const char* sql) {
  return outcome_of(sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr));
}

Outcome Database::query_integer(const char* sql, std::int64_t* value) {
  sqlite3_stmt* raw = nullptr;
  int code = sqlite3_prepare_v2(connection_.get(), sql, -1, &raw, nullptr);
  const std::unique_ptr<sqlite3_stmt, Finalize> statement(raw);
  if (code != SQLITE_OK) return outcome_of(code);
  code = sqlite3_step(raw);
  if (code != SQLITE_ROW) return code == SQLITE_DONE ? Outcome::failed : outcome_of(code);
  *value = sqlite3_column_int64(raw, 0);
  return Outcome::ok;
}

}  // namespace saccade::cache
