// The writer thread's side of the user database.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "cache/signal_guard.h"
#include "cache/user_layer.h"

namespace saccade::cache {
namespace {

constexpr int kFailuresUntilOff = 8;
constexpr std::chrono::hours kTrimPause{1};  // after a trim that could free nothing

/// Ends a transaction that is not committed, also when something throws: left open it would lock out all other writers.
class RollbackAtEnd {
 public:
  explicit RollbackAtEnd(Database& database) : database_(database) {}
  ~RollbackAtEnd() { database_.rollback(); }
  RollbackAtEnd(const RollbackAtEnd&) = delete;
  RollbackAtEnd& operator=(const RollbackAtEnd&) = delete;

 private:
  Database& database_;
};

bool needs_row(const WriteTask& task) { return task.kind == WriteTask::Kind::put; }

}  // namespace

void UserLayer::write(const std::vector<WriteTask>& tasks) {
  if (state_ == State::damaged) recover();
  if (open_if_closed(deadline_in(kOpenTimeout)) != Outcome::ok || !is_writable()) return;
  std::vector<std::pair<const WriteTask*, StoredRow>> rows;
  for (const WriteTask& task : tasks) {
    if (task.kind == WriteTask::Kind::recover) continue;
    StoredRow row;
    // Compression is most of the work; no lock is held for it.
    if (needs_row(task)) {
      row = encode(task.table, *task.key, *task.row, task.created, task.last_used);
      // One that would push out everything else is not worth its place.
      if (static_cast<std::int64_t>(row.key.size() + row.content.size()) > settings_.max_bytes / 5 * 4) continue;
    }
    rows.emplace_back(&task, std::move(row));
  }
  if (rows.empty()) return;
  Outcome outcome = Outcome::ok;
  {
    const std::lock_guard lock(writer_mutex_);
    if (!is_writable()) return;
    outcome = write_holding_writer(rows);
    if (outcome == Outcome::ok) {
      failures_in_a_row_ = 0;
      trim_when_large();
    } else {
      count_failure(outcome);
    }
  }
  if (outcome == Outcome::corrupt) recover();
}

Outcome UserLayer::write_holding_writer(const std::vector<std::pair<const WriteTask*, StoredRow>>& rows) {
  const Deadline deadline = deadline_in(kWriteTimeout);
  Outcome outcome = open_writer(deadline);
  if (outcome != Outcome::ok) return outcome;
  const RollbackAtEnd rollback(*writer_);
  writer_->set_deadline(deadline);
  outcome = writer_->begin();
  for (const auto& [task, row] : rows) {
    if (outcome != Outcome::ok) break;
    const KeyHash hash = settings_.hooks.hash(*task->key);
    outcome =
        needs_row(*task) ? writer_->put(task->table, hash, row) : writer_->touch(task->table, hash, task->last_used);
  }
  if (outcome == Outcome::ok) outcome = writer_->commit();
  if (outcome != Outcome::ok) {
    log::info(log::Topic::cache,
              fmt::format("{} entries not written to {}: {}", rows.size(), path_, writer_->last_error()));
  }
  return outcome;
}

void UserLayer::count_failure(Outcome outcome) {
  if (outcome == Outcome::corrupt) {
    state_ = State::damaged;
    return;
  }
  warn(outcome);
  if (outcome == Outcome::read_only) writes_allowed_ = false;
  if (++failures_in_a_row_ < kFailuresUntilOff) return;
  writes_allowed_ = false;
  log::info(log::Topic::cache,
            fmt::format("{} failed {} writes in a row; no more are tried", path_, failures_in_a_row_));
}

void UserLayer::trim_when_large() {
  std::int64_t live = 0;
  if (std::chrono::steady_clock::now() < next_trim_) return;
  if (writer_->live_bytes(&live) != Outcome::ok || live <= settings_.max_bytes) return;
  // To 80%, so that the next entry does not trim again.
  std::int64_t freed = 0;
  if (const Outcome outcome = trim_holding_writer(settings_.max_bytes / 5 * 4, &freed); outcome != Outcome::ok)
    warn(outcome);
  if (freed == 0) next_trim_ = std::chrono::steady_clock::now() + kTrimPause;
}

Expected<std::int64_t> UserLayer::trim(std::int64_t max_bytes) {
  std::int64_t freed = 0;
  Outcome outcome = open_if_closed(deadline_in(kOpenTimeout));
  // What a layer that is out of use says; it may have its file.
  if (outcome == Outcome::missing) outcome = is_recoverable() ? Outcome::corrupt : Outcome::failed;
  if (outcome == Outcome::ok) {
    const FileSizeSignalBlocked blocked;
    const std::lock_guard lock(writer_mutex_);
    outcome = is_writable() ? open_writer(deadline_in(kWriteTimeout)) : Outcome::read_only;
    if (outcome == Outcome::ok) outcome = trim_holding_writer(max_bytes, &freed);
  }
  if (outcome == Outcome::ok) return freed;
  return Status::io_error(fmt::format("{} {}; {} bytes were freed", path_, describe(outcome), freed));
}

Outcome UserLayer::trim_holding_writer(std::int64_t max_bytes, std::int64_t* freed) {
  std::int64_t before = 0, live = 0;
  Outcome outcome = writer_->live_bytes(&before);
  live = before;
  // Binaries are rebuilt by compiling, rejections by trying again; a tuned row costs most to get back and is kept.
  for (const Table table : {Table::binary, Table::rejected}) {
    std::int64_t deleted = 1;
    while (outcome == Outcome::ok && live > max_bytes && deleted > 0) {
      // A transaction for each few rows, so that other writers get their turn.
      const RollbackAtEnd rollback(*writer_);
      writer_->set_deadline(deadline_in(kWriteTimeout));
      outcome = writer_->begin();
      if (outcome == Outcome::ok) outcome = writer_->evict_some(table, live - max_bytes, &deleted);
      if (outcome == Outcome::ok) outcome = writer_->shrink();
      if (outcome == Outcome::ok) outcome = writer_->commit();
      if (outcome == Outcome::ok) outcome = writer_->live_bytes(&live);
    }
  }
  if (outcome == Outcome::corrupt) state_ = State::damaged;
  *freed = std::max<std::int64_t>(0, before - live);
  return outcome;
}

}  // namespace saccade::cache
