// The read-write user database: one connection for lookups, one for the writer thread, one at a time for inspection;
// opened lazily, set aside when damaged, closed around a fork.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/database.h"
#include "cache/file_lock.h"
#include "cache/hooks.h"
#include "cache/writer.h"

namespace saccade::cache {

class UserLayer {
 public:
  struct Settings {
    std::string directory;  ///< checked
    bool read_only = false;
    bool use_wal = true;
    std::int64_t max_bytes = 0;
    Hooks hooks;
  };

  explicit UserLayer(Settings settings);

  /// Opens the file, creates it when missing, sets a damaged one aside. The reason when there is no using it.
  Outcome open();
  void close();
  const std::string& path() const { return path_; }
  const std::string& directory() const { return settings_.directory; }
  bool is_open() const { return state_ == State::open; }
  /// Also before the first use after a fork, which opens the file again.
  bool is_writable() const { return (state_ == State::open || state_ == State::closed) && writes_allowed_; }

  /// Whether a damaged file waits for `write` to set it aside.
  bool is_recoverable() const { return state_ == State::damaged; }

  Outcome find(Table table, const KeyHash& hash, Deadline deadline, StoredRow* row);

  /// Writes the batch in one transaction, then trims when the file has grown too large. For the writer thread.
  void write(const std::vector<WriteTask>& tasks);
  /// Evicts until at most `max_bytes` are in use: binaries first, then rejected rows, least recently used first.
  /// Gives the bytes freed, or `io_error` and why not all of them.
  Expected<std::int64_t> trim(std::int64_t max_bytes);
  /// Runs `work` on a connection of its own, so that lookups and writes go on.
  Outcome inspect(const std::function<Outcome(Database&)>& work);
  /// One warning for the file and the outcome.
  void warn(Outcome outcome) const;

  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  /// `damaged`: out of use until the writer thread has set the file aside. `off`: out of use for good.
  enum class State { closed, open, damaged, off };

  Outcome open_if_closed(Deadline deadline);
  Outcome open_holding_all(Deadline deadline);
  Outcome create_or_replace(Deadline deadline);
  Outcome create_when_alone(Deadline deadline);
  Outcome open_reader(Deadline deadline);
  Outcome open_writer(Deadline deadline);
  bool looks_empty() const;
  Outcome set_aside();
  void recover();
  Outcome write_holding_writer(const std::vector<std::pair<const WriteTask*, StoredRow>>& rows);
  void count_failure(Outcome outcome);
  void trim_when_large();
  Outcome trim_holding_writer(std::int64_t max_bytes, std::int64_t* freed);
  bool remember_identity();

  const Settings settings_;
  const std::string path_;
  std::atomic<State> state_{State::closed};
  std::atomic<bool> writes_allowed_{true};
  std::atomic<std::int64_t> impatient_until_{0};  // steady clock, ns: lookups do not wait again so soon after a timeout

  // In the order in which they are taken. All three together guard side_lock_; the reader's also device_ and inode_.
  std::mutex inspection_mutex_;
  std::mutex writer_mutex_;
  std::timed_mutex reader_mutex_;
  std::unique_ptr<Database> writer_;
  std::unique_ptr<Database> reader_;
  FileLock side_lock_;  // shared while the file is open here, exclusive while it is created or set aside
  dev_t device_ = 0;
  ino_t inode_ = 0;

  int failures_in_a_row_ = 0;  // of writes; guarded by writer_mutex_
  Deadline next_trim_{};       // guarded by writer_mutex_
};

}  // namespace saccade::cache
