#include "cache/compile_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/log.h"

#include "cache/file_lock.h"
#include "cache/fork.h"

namespace saccade::cache {
namespace {

constexpr std::chrono::milliseconds kFlushTimeout{1000};

/// A folder, held open: what is done in it stays in it, whatever its path names meanwhile.
class Folder {
 public:
  /// Follows no symbolic link. Relative paths start at `parent`.
  Folder(int parent, const char* path)
      : descriptor_(openat(parent, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {}
  ~Folder() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Folder(Folder&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  Folder& operator=(Folder&&) = delete;

  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

class FlockCompileLock final : public CompileLock, public ForkParticipant {
 public:
  FlockCompileLock(Folder folder, std::string name, std::shared_ptr<Writer> writer)
      : folder_(std::move(folder)), name_(std::move(name)), writer_(std::move(writer)) {
    register_for_fork(this);
  }

  ~FlockCompileLock() override {
    if (lock_.held() && process_ == getpid()) {
      writer_->flush(deadline_in(kFlushTimeout));
      // Removed while it is held, so that the folder does not fill up; who waits for it notices (see `acquire`).
      unlinkat(folder_.descriptor(), name_.c_str(), 0);
    }
    unregister_for_fork(this);
    if (process_ == getpid())
      lock_.release();
    else
      lock_.abandon();
  }

  bool acquire(Deadline deadline) {
    process_ = getpid();
    while (lock_.acquire(name_, FileLock::Kind::exclusive, true, deadline, folder_.descriptor()) ==
           FileLock::Result::held) {
      if (lock_.is_at(name_, folder_.descriptor())) return true;
      // The holder before us removed the file that we locked; others lock the new one.
      lock_.release();
    }
    return false;
  }

  void before_fork() override {}
  void after_fork_in_parent() override {}
  void after_fork_in_child() override { lock_.abandon(); }

 private:
  const Folder folder_;
  const std::string name_;
  const std::shared_ptr<Writer> writer_;
  pid_t process_ = 0;
  FileLock lock_;
};

}  // namespace

std::unique_ptr<CompileLock> take_compile_lock(const std::string& directory, const KeyHash& hash, Deadline deadline,
                                               std::shared_ptr<Writer> writer) {
  constexpr const char* kLocks = "locks";
  const Folder cache(AT_FDCWD, directory.c_str());
  if (!cache.is_open()) return nullptr;
  mkdirat(cache.descriptor(), kLocks, 0700);  // when it cannot be made and is not there, the lock cannot be had either
  Folder locks(cache.descriptor(), kLocks);
  if (!locks.is_open()) {
    if (errno == ELOOP || errno == ENOTDIR) {
      log::warn_once(
          fmt::format("cache: {}/{} is a symbolic link or no folder; remove it. Until then several processes may "
                      "compile the same kernel",
                      directory, kLocks));
    }
    return nullptr;
  }
  auto lock = std::make_unique<FlockCompileLock>(std::move(locks), to_hex(hash), std::move(writer));
  if (!lock->acquire(deadline)) return nullptr;
  return lock;
}

}  // namespace saccade::cache
