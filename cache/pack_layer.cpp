#include "cache/pack_layer.h"

#include <fmt/format.h>

#include "cache/pack_path.h"

namespace saccade::cache {

Status PackLayer::open(const TrustedKeys& trusted) {
  SACCADE_TRY(check_pack(path_, trusted));
  const std::lock_guard lock(mutex_);
  const Outcome outcome = Database::open(path_, Access::immutable, deadline_in(kReadTimeout), &database_);
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
  if (database_ == nullptr) outcome = Database::open(path_, Access::immutable, deadline, &database_);
  if (outcome == Outcome::ok) outcome = database_->find(table, hash, row);
  return outcome;
}

Outcome PackLayer::inspect(const std::function<Outcome(Database&)>& work) {
  const std::lock_guard lock(inspection_mutex_);
  std::unique_ptr<Database> database;
  const Outcome outcome = Database::open(path_, Access::immutable, deadline_in(kReadTimeout), &database);
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
