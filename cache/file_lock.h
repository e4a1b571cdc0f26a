// Advisory locks by flock: the kernel frees them when their holder dies, so none is ever stale.
#pragma once

#include <fcntl.h>

#include <memory>
#include <string>

#include "cache/deadline.h"

namespace saccade::cache {

/// flock on an open file description of its own, so it also excludes other threads of this process.
class FileLock {
 public:
  enum class Kind { shared, exclusive };
  enum class Result {
    held,
    busy,         ///< others had it until the deadline
    unavailable,  ///< no such file, not permitted, or no flock on this file system
  };

  FileLock() = default;
  ~FileLock() { release(); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  /// Creates the file (mode 0600) when `create`; never follows a symbolic link. Polls until the deadline. A relative
  /// `path` starts at `folder`, an open descriptor.
  Result acquire(const std::string& path, Kind kind, bool create, Deadline deadline, int folder = AT_FDCWD);
  /// From exclusive to shared, with nobody in between.
  void downgrade();
  /// Releases the lock for every process that inherited the descriptor.
  void release();
  /// Closes the descriptor that a forked child inherited; the parent keeps its lock.
  void abandon();
  bool held() const { return descriptor_ >= 0; }
  /// Whether `path` still names the file that is locked.
  bool is_at(const std::string& path, int folder = AT_FDCWD) const;

 private:
  Result lock_descriptor(Kind kind, Deadline deadline) const;

  int descriptor_ = -1;
};

}  // namespace saccade::cache
