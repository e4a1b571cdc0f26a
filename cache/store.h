// The SQLite store: binaries, tuned rows and rejected candidates, three tables with three lifetimes. Knows bytes and
// keys, nothing about attention. A cache problem is never the user's error: every fault is a miss and one warning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace saccade::cache {

/// Length-prefixed fields, so that no two lists of fields give the same bytes.
class KeyBuilder {
 public:
  KeyBuilder& add(std::string_view name, std::string_view value);
  KeyBuilder& add(std::string_view name, std::int64_t value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// A field as KeyBuilder was given it.
struct KeyField {
  std::string name;
  bool is_number = false;
  std::string text;  ///< of a field that is no number
  std::int64_t number = 0;
};
/// The inverse of KeyBuilder; nothing for bytes that it did not make.
std::optional<std::vector<KeyField>> fields_of(std::string_view key);

struct Binary {
  std::string code;      ///< cubin or ELF object, raw
  std::string metadata;  ///< JSON provenance: registers, spills, compile time, compiler; not in the key
};

struct Tuned {
  std::string schedule;    ///< JSON, by name
  std::string provenance;  ///< JSON: times, noise, runners-up, date, driver
};

struct Rejected {
  std::string reason;
};

struct TunedRow {
  std::string key;
  Tuned tuned;
  std::string label;
  std::string layer;         ///< path, or "memory"
  std::int64_t created = 0;  ///< Unix seconds: when it was put, in a pack when it was measured; 0: not known
};

/// What becomes of tuned_rows() when a layer cannot be read.
enum class Unreadable : std::uint8_t { fails, is_skipped };
inline constexpr std::size_t kAllRows = std::numeric_limits<std::size_t>::max();

struct Options {
  /// Folder of the user database; empty: $SACCADE_CACHE_DIR, else $XDG_CACHE_HOME/saccade, else $HOME/.cache/saccade,
  /// else memory only. Environment is ignored in secure-execution mode.
  std::string directory;
  std::vector<std::string>
      packs;                 ///< read-only databases below the user's, before those that are found (cache/pack_path.h)
  bool finds_packs = true;   ///< false: only `packs`
  std::string trusted_keys;  ///< file of public keys, beside the system's
  bool require_signature = false;  ///< also when no file of trusted keys says so
  bool read_only = false;
  bool memory_only = false;  ///< no user database; packs are still read
  std::int64_t max_bytes = std::int64_t{1} << 30;
};

struct LayerStatistics {
  std::string path;
  bool writable = false;
  std::int64_t binaries = 0, binary_bytes = 0, tuned = 0, rejected = 0, file_bytes = 0;
};

struct Entry {
  std::string table;  ///< "binary", "tuned" or "rejected"
  std::string layer;  ///< path
  std::string label;  ///< what the writer said it was, for people
  std::int64_t bytes = 0;
  std::int64_t last_used = 0;  ///< Unix seconds, hour granularity
};

/// Held while one process compiles a key; released by destruction or by the death of the process.
class CompileLock {
 public:
  virtual ~CompileLock() = default;
};

/// Thread safe. Safe across fork (the child reopens). Reads never block for more than 250 ms; writes happen on a
/// background thread and are dropped when the database is busy, full or read-only.
class Store {
 public:
  /// Never fails: what cannot be opened is left out, with one warning.
  static std::unique_ptr<Store> open(const Options& options);
  virtual ~Store() = default;

  /// Looks in memory, the user database, then the packs (of tuned rows the one measured last); compares full key bytes and verifies
  /// the checksum.
  /// `layer` is set to the path of the database that had it, or "memory" when this process put it itself.
  virtual std::optional<Binary> find_binary(const std::string& key, std::string* layer = nullptr) = 0;
  virtual void put_binary(const std::string& key, Binary binary, std::string_view label) = 0;
  virtual std::optional<Tuned> find_tuned(const std::string& key, std::string* layer = nullptr) = 0;
  virtual void put_tuned(const std::string& key, Tuned tuned, std::string_view label) = 0;
  virtual std::optional<Rejected> find_rejected(const std::string& key) = 0;
  virtual void put_rejected(const std::string& key, Rejected rejected, std::string_view label) = 0;

  /// Best effort, across processes: null when the lock cannot be had within the time, or there is no writable folder;
  /// then compile anyway. Look again after getting it. Its release waits (1 s at most) for queued writes, so that the
  /// next holder finds what this one put.
  virtual std::unique_ptr<CompileLock> lock(const std::string& key, int timeout_ms) = 0;

  /// Waits until queued writes are on disk (or dropped).
  virtual void flush() = 0;

  virtual std::vector<LayerStatistics> statistics() = 0;
  virtual std::vector<Entry> list() = 0;
  /// What the table of tuned rows holds in all layers, measurements of interrupted searches among it; of each key the row that
  /// find_tuned() would give. Damaged rows are left out. `io_error` when a layer could not be read as a whole and that `fails`,
  /// `not_found` when there is none.
  /// At most `most` rows of each layer are read.
  virtual Expected<std::vector<TunedRow>> tuned_rows(Unreadable unreadable, std::size_t most) = 0;
  /// Reads every row of every layer; one line for each fault found, empty when all is well.
  virtual std::vector<std::string> verify() = 0;
  /// Evicts least recently used binaries, then rejected rows, until the user database holds at most `max_bytes`; tuned
  /// rows stay. Gives the bytes freed. `not_found` when there is no user database (memory only, or why it was left
  /// out), `io_error` when it cannot be written or stays locked.
  virtual Expected<std::int64_t> trim(std::int64_t max_bytes) = 0;
  virtual std::string user_path() const = 0;  ///< empty when memory only
};

}  // namespace saccade::cache
