#include "cache/pack_layer.h"

#include <fmt/format.h>

#include "cache/directory.h"
#include "cache/pack_path.h"

namespace saccade::cache {

namespace {

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

PackLayer::PackLayer(const std::string& path) : path_(absolute_path(path)) {}

Outcome PackLayer::connect(Deadline deadline, std::unique_ptr<Database>* database) const {
  struct stat status{};
  const auto is_checked = [&] { return stat(path_.c_str(), &status) == 0 && is_same_file(status, checked_); };
  if (!is_checked()) return Outcome::replaced;
  const Outcome outcome = Database::open(path_, Access::immutable, deadline, database);
  if (outcome != Outcome::ok || is_checked()) return outcome;
  database->reset();
  return Outcome::replaced;
}

Status PackLayer::open(const TrustedKeys& trusted) {
  if (stat(path_.c_str(), &checked_) != 0) checked_ = {};
  SACCADE_TRY(check_pack(path_, trusted));
  const std::lock_guard lock(mutex_);
  const Outcome outcome = connect(deadline_in(kReadTimeout), &database_);
  if (outcome != Outcome::ok) return {StatusCode::io_error, fmt::format("{} {}", path_, describe(outcome))};
  usable_ = true;
  return {};
}

Outcome PackLayer::find(Table table, const KeyHash& hash, Deadline deadline, StoredRow* row) {
  if (!usable_) return Outcome::missing;
  const std::unique_lock lock(mutex_, deadline);
  if (!lock.owns_lock()) return Outcome::busy;
  if (!usable_) return Outcome::missing;
  Outcome outcome = Outcome::ok;
  if (database_ == nullptr) outcome = connect(deadline, &database_);
  if (outcome == Outcome::ok) outcome = database_->find(table, hash, row);
  return outcome;
}

Outcome PackLayer::inspect(const std::function<Outcome(Database&)>& work) {
  const std::lock_guard lock(inspection_mutex_);
  std::unique_ptr<Database> database;
  const Outcome outcome = connect(deadline_in(kReadTimeout), &database);
  return outcome == Outcome::ok ? work(*database) : outcome;
}

void PackLayer::close() {
  const std::lock_guard lock(mutex_);
  usable_ = false;
  database_.reset();
}

void PackLayer::before_fork() {
  inspection_mutex_.lock();
  mutex_.lock();
  database_.reset();
}

void PackLayer::after_fork() {
  mutex_.unlock();
  inspection_mutex_.unlock();
}

}  // namespace saccade::cache
