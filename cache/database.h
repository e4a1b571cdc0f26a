// One SQLite connection to a cache file: opening by the rules, the schema, and the statements on it. Not thread safe;
// its owner holds a mutex. Nothing here warns or retries: every call returns an Outcome.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/deadline.h"
#include "cache/key.h"
#include "cache/row.h"

struct sqlite3;
struct sqlite3_stmt;

namespace saccade::cache {

inline constexpr std::int64_t kApplicationId = 0x53414343;  ///< "SACC"
inline constexpr std::int64_t kSchemaVersion = 1;           ///< also in the file's name: a new schema is a new file

enum class Outcome {
  ok,
  missing,  ///< no such row or file
  empty,    ///< a database without a schema yet
  busy,     ///< locked by another process until the deadline
  full,     ///< no space left on the device
  read_only,
  io_error,
  corrupt,         ///< no database, or a damaged one
  foreign,         ///< some other program's database
  no_file,         ///< a pipe, a folder, a symbolic link or the like, there or in the place of a side file
  needs_recovery,  ///< only who can write its folder can read it
  newer,           ///< a later schema's file
  replaced,        ///< no longer the file that was checked
  bad_row,         ///< one row that cannot be trusted; the rest may be well
  failed,          ///< anything else
};

/// What the outcome means for the user, as the end of a sentence about the file.
const char* describe(Outcome outcome);

enum class Access {
  immutable,  ///< mode=ro&immutable=1: never locked, no side files
  read_only,  ///< another process may write
  read,       ///< may recover the log, but changes no row
  write,
};

class Database {
 public:
  /// A database in WAL mode that was closed well, in a folder that this process cannot write, is opened as immutable when
  /// it is to be read: SQLite would make side files there.
  static Outcome open(const std::string& path, Access access, Deadline deadline, std::unique_ptr<Database>* database);
  /// Lays out a file that is missing or `empty`. The caller excludes every other process meanwhile.
  static Outcome create(const std::string& path, bool use_wal, Deadline deadline);

  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  /// Waits for locks end at this time, from now on.
  void set_deadline(Deadline deadline) { deadline_ = deadline; }
  /// Leaves the log where it is: closing must be quick before a fork.
  void skip_checkpoint_on_close();
  /// Whether the connection could be opened only for reading.
  bool is_read_only() const;

  Outcome find(Table table, const KeyHash& hash, StoredRow* row);

  Outcome begin();
  Outcome commit();
  void rollback();
  Outcome put(Table table, const KeyHash& hash, const StoredRow& row);
  Outcome touch(Table table, const KeyHash& hash, std::int64_t last_used);

  /// Bytes of the pages in use.
  Outcome live_bytes(std::int64_t* bytes);
  /// Deletes least recently used rows of the table, oldest first, until about `bytes` are freed; a few per call, so
  /// that other processes get their turn. `deleted` is 0 when the table is empty.
  Outcome evict_some(Table table, std::int64_t bytes, std::int64_t* deleted);
  /// Gives free pages at the end of the file back to the file system.
  Outcome shrink();

  struct Listed {
    std::string label;
    std::int64_t bytes = 0;  ///< as stored
    std::int64_t last_used = 0;
  };
  Outcome list(Table table, const std::function<void(Listed)>& visit);
  /// Every row with all its bytes; `well_formed` is false when a column has another type than the schema says.
  Outcome read_all(Table table, const std::function<void(bool well_formed, std::string hash, StoredRow)>& visit);
  /// SQLite's own check of the file's structure; one line for each fault.
  Outcome quick_check(const std::function<void(std::string)>& fault);

  /// SQLite's text for the last failure.
  std::string last_error() const;

 private:
  enum class Action { find, put, touch, list, read_all, evict_candidates, evict };
  static constexpr std::size_t kActions = 7;

  Database() = default;
  Outcome connect(const std::string& path, Access access);
  Outcome harden();
  Outcome examine();
  Outcome examine_schema(bool* has_tables);
  Outcome execute(const char* sql);
  Outcome query_integer(const char* sql, std::int64_t* value);
  Outcome prepare(Table table, Action action, sqlite3_stmt** statement);
  Outcome run(sqlite3_stmt* statement);
  Outcome row_limit(std::int64_t* rows);
  static int wait_for_lock(void* self, int attempt);

  struct CloseConnection {
    void operator()(sqlite3* connection) const;
  };
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3, CloseConnection> connection_;
  std::array<std::unique_ptr<sqlite3_stmt, Finalize>, kActions * kTables.size()> statements_;
  Deadline deadline_{};
};

}  // namespace saccade::cache
