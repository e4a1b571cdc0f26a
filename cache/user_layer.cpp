// Opening, creating, setting aside and forking. Writing and trimming are in user_layer_write.cpp.
#include "cache/user_layer.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/log.h"

namespace saccade::cache {
namespace {

/// A file that a network file system may have is never opened with WAL, and one with WAL never without: the modes have
/// names of their own, because a home directory can be local on one host and mounted on another.
std::string file_name(bool use_wal) { return fmt::format("cache-v{}{}.db", kSchemaVersion, use_wal ? "" : "-shared"); }

/// Keeps disk use bounded: one damaged file, the last, is enough to look at.
void remove_older_corpses(const std::string& path) {
  const std::filesystem::path file(path);
  const std::string prefix = file.filename().string() + ".corrupt-";
  std::vector<std::filesystem::path> corpses;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(file.parent_path(), error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().filename().string().starts_with(prefix)) corpses.push_back(entry->path());
  for (const auto& corpse : corpses) std::filesystem::remove(corpse, error);
}

std::int64_t nanoseconds(Deadline time) { return time.time_since_epoch() / std::chrono::nanoseconds{1}; }

}  // namespace

UserLayer::UserLayer(Settings settings)
    : settings_(std::move(settings)), path_(fmt::format("{}/{}", settings_.directory, file_name(settings_.use_wal))) {}

void UserLayer::warn(Outcome outcome) const { log::warn_once(fmt::format("cache: {} {}", path_, describe(outcome))); }

bool UserLayer::remember_identity() {
  struct stat status{};
  if (stat(path_.c_str(), &status) != 0) return false;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  return true;
}

Outcome UserLayer::open() { return open_if_closed(deadline_in(kOpenTimeout)); }

Outcome UserLayer::open_if_closed(Deadline deadline) {
  if (state_ == State::open) return Outcome::ok;
  if (state_ != State::closed) return Outcome::missing;
  const std::scoped_lock lock(inspection_mutex_, writer_mutex_, reader_mutex_);
  if (state_ != State::closed) return state_ == State::open ? Outcome::ok : Outcome::missing;
  const Outcome outcome = open_holding_all(deadline);
  state_ = outcome == Outcome::ok ? State::open : State::off;
  if (outcome != Outcome::ok) side_lock_.release();
  return outcome;
}

bool UserLayer::looks_empty() const {
  struct stat status{};
  return lstat(path_.c_str(), &status) != 0 || (S_ISREG(status.st_mode) && status.st_size == 0);
}

Outcome UserLayer::open_holding_all(Deadline deadline) {
  // The shared side lock tells others that the file is in use and must not be renamed. Where there is no having one (a
  // read-only folder, a file system without flock) the file can be read, but not replaced.
  const std::string side_path = path_ + ".lock";
  const Deadline corrupt_deadline = deadline_in(kReadTimeout);
  std::chrono::microseconds pause{500};
  while (true) {
    Outcome outcome = Outcome::missing;
    if (settings_.read_only || !looks_empty()) {
      const FileLock::Result lock =
          side_lock_.acquire(side_path, FileLock::Kind::shared, !settings_.read_only, deadline);
      if (lock == FileLock::Result::busy) return Outcome::busy;
      outcome = open_reader(deadline);
    }
    const bool replaceable = outcome == Outcome::missing || outcome == Outcome::empty || outcome == Outcome::corrupt;
    if (!replaceable || settings_.read_only) return outcome;
    // Exclusive only by trying: whoever creates the file keeps a shared lock afterwards, and waiting for that one to go
    // would be waiting for the end of its process.
    const FileLock::Result lock = side_lock_.acquire(side_path, FileLock::Kind::exclusive, true, Deadline{});
    if (lock == FileLock::Result::held) return create_when_alone(deadline);
    if (lock == FileLock::Result::unavailable) return outcome == Outcome::corrupt ? outcome : Outcome::read_only;
    // A damaged file that others have open will stay; they only need the time to find out themselves.
    if (outcome == Outcome::corrupt) deadline = std::min(deadline, corrupt_deadline);
    if (std::chrono::steady_clock::now() >= deadline) return outcome == Outcome::corrupt ? outcome : Outcome::busy;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 3 / 2, std::chrono::microseconds{10000});
  }
}

Outcome UserLayer::create_when_alone(Deadline deadline) {
  const Outcome outcome = create_or_replace(deadline);
  side_lock_.downgrade();
  return outcome;
}

Outcome UserLayer::create_or_replace(Deadline deadline) {
  Outcome outcome = open_reader(deadline);  // another process may have been here first
  if (outcome == Outcome::corrupt) {
    if (outcome = set_aside(); outcome != Outcome::ok) return outcome;
    outcome = Outcome::missing;
  }
  if (outcome != Outcome::missing && outcome != Outcome::empty) return outcome;
  outcome = Database::create(path_, settings_.use_wal, deadline);
  return outcome == Outcome::ok ? open_reader(deadline) : outcome;
}

Outcome UserLayer::open_reader(Deadline deadline) {
  const Access access = settings_.read_only ? Access::read_only : Access::read;
  const Outcome outcome = Database::open(path_, access, deadline, &reader_);
  if (outcome != Outcome::ok) return outcome;
  if (settings_.read_only || reader_->is_read_only()) writes_allowed_ = false;
  return remember_identity() ? Outcome::ok : Outcome::missing;
}

Outcome UserLayer::open_writer(Deadline deadline) {
  return writer_ != nullptr ? Outcome::ok : Database::open(path_, Access::write, deadline, &writer_);
}

Outcome UserLayer::set_aside() {
  remove_older_corpses(path_);
  const std::string corpse = fmt::format("{}.corrupt-{}", path_, settings_.hooks.now());
  // The log goes first: a log without its database is thrown away by SQLite, one beside a new database is poison.
  for (const char* suffix : {"-wal", "-journal"}) {
    if (rename((path_ + suffix).c_str(), (corpse + suffix).c_str()) != 0 && errno != ENOENT) return Outcome::read_only;
  }
  if (unlink((path_ + "-shm").c_str()) != 0 && errno != ENOENT) return Outcome::read_only;
  if (rename(path_.c_str(), corpse.c_str()) != 0 && errno != ENOENT) return Outcome::read_only;
  log::warn_once(fmt::format("cache: {} was damaged; it is now {}, and a new one is used", path_, corpse));
  return Outcome::ok;
}

void UserLayer::recover() {
  const std::scoped_lock lock(inspection_mutex_, writer_mutex_, reader_mutex_);
  if (state_ != State::damaged) return;
  writer_.reset();
  reader_.reset();
  state_ = State::off;
  const Deadline deadline = deadline_in(kOpenTimeout);
  if (side_lock_.acquire(path_ + ".lock", FileLock::Kind::exclusive, true, deadline) != FileLock::Result::held) {
    log::warn_once(
        fmt::format("cache: {} is damaged and in use by other processes; this one keeps entries in memory", path_));
    return;
  }
  // Only the very file that was found damaged: another process may have replaced it since.
  struct stat status{};
  const bool same = stat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
  if (!same || set_aside() == Outcome::ok) {
    side_lock_.release();
    if (open_holding_all(deadline) == Outcome::ok) state_ = State::open;
  }
  if (state_ != State::open) side_lock_.release();
}

Outcome UserLayer::find(Table table, const KeyHash& hash, Deadline deadline, StoredRow* row) {
  if (const Outcome outcome = open_if_closed(deadline); outcome != Outcome::ok) return outcome;
  const std::unique_lock lock(reader_mutex_, deadline);
  if (!lock.owns_lock()) return Outcome::busy;
  if (state_ != State::open) return Outcome::missing;
  const auto now = std::chrono::steady_clock::now();
  const Deadline patience = nanoseconds(now) < impatient_until_ ? now : deadline;
  Outcome outcome = Outcome::ok;
  if (reader_ == nullptr) outcome = open_reader(patience);
  if (outcome == Outcome::ok) {
    reader_->set_deadline(patience);
    outcome = reader_->find(table, hash, row);
  }
  if (outcome == Outcome::corrupt) state_ = settings_.read_only ? State::off : State::damaged;
  // A hundred lookups in a row must not wait a hundred times for the same lock.
  if (outcome == Outcome::busy && patience == deadline)
    impatient_until_ = nanoseconds(deadline + std::chrono::seconds{2});
  return outcome;
}

Outcome UserLayer::inspect(const std::function<Outcome(Database&)>& work) {
  if (const Outcome outcome = open_if_closed(deadline_in(kOpenTimeout)); outcome != Outcome::ok) return outcome;
  const std::lock_guard lock(inspection_mutex_);
  std::unique_ptr<Database> database;
  const Access access = settings_.read_only ? Access::read_only : Access::read;
  const Outcome outcome = Database::open(path_, access, deadline_in(kReadTimeout), &database);
  return outcome == Outcome::ok ? work(*database) : outcome;
}

void UserLayer::close() {
  const std::scoped_lock lock(inspection_mutex_, writer_mutex_, reader_mutex_);
  state_ = State::off;
  reader_.reset();
  writer_.reset();
  side_lock_.release();
}

void UserLayer::before_fork() {
  inspection_mutex_.lock();
  writer_mutex_.lock();
  reader_mutex_.lock();
  // Only when SQLite has no connection left does it forget which locks this process holds.
  for (auto* database : {&reader_, &writer_}) {
    if (*database != nullptr) (*database)->skip_checkpoint_on_close();
    database->reset();
  }
}

void UserLayer::after_fork_in_parent() {
  reader_mutex_.unlock();
  writer_mutex_.unlock();
  inspection_mutex_.unlock();
}

void UserLayer::after_fork_in_child() {
  side_lock_.abandon();
  if (state_ != State::off) state_ = State::closed;
  failures_in_a_row_ = 0;
  after_fork_in_parent();
}

}  // namespace saccade::cache
