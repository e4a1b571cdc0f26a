#include "cache/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace saccade::cache {

FileLock::Result FileLock::lock_descriptor(Kind kind, Deadline deadline) const {
  // Polling, because a blocking flock can only be bounded by a signal, and a library has none to spare.
  const int operation = (kind == Kind::shared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  std::chrono::microseconds pause{200};
  while (flock(descriptor_, operation) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return Result::unavailable;
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return Result::busy;
    std::this_thread::sleep_for(std::min<std::chrono::steady_clock::duration>(pause, deadline - now));
    pause = std::min(pause * 3 / 2, std::chrono::microseconds{20000});
  }
  return Result::held;
}

FileLock::Result FileLock::acquire(const std::string& path, Kind kind, bool create, Deadline deadline, int folder) {
  release();
  // O_NONBLOCK: a pipe that lies there must not wait for its other end.
  const int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (create ? O_RDWR | O_CREAT : O_RDONLY);
  descriptor_ = openat(folder, path.c_str(), flags, 0600);
  if (descriptor_ < 0) return Result::unavailable;
  struct stat file;
  if (fstat(descriptor_, &file) != 0 || !S_ISREG(file.st_mode)) {
    abandon();
    return Result::unavailable;
  }
  const Result result = lock_descriptor(kind, deadline);
  if (result != Result::held) abandon();
  return result;
}

void FileLock::downgrade() {
  if (descriptor_ >= 0) flock(descriptor_, LOCK_SH | LOCK_NB);
}

void FileLock::release() {
  if (descriptor_ < 0) return;
  flock(descriptor_, LOCK_UN);  // explicit: a forked child may hold a copy of the descriptor
  abandon();
}

void FileLock::abandon() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

bool FileLock::is_at(const std::string& path, int folder) const {
  struct stat locked{};
  struct stat named{};
  return fstat(descriptor_, &locked) == 0 && fstatat(folder, path.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
}

}  // namespace saccade::cache
