#include "cache/compile_lock.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "cache/file_lock.h"
#include "cache/fork.h"

namespace saccade::cache {
namespace {

constexpr std::chrono::milliseconds kFlushTimeout{1000};

class FlockCompileLock final : public CompileLock, public ForkParticipant {
 public:
  FlockCompileLock(std::string path, std::shared_ptr<Writer> writer)
      : path_(std::move(path)), writer_(std::move(writer)) {
    register_for_fork(this);
  }

  ~FlockCompileLock() override {
    if (lock_.held() && process_ == getpid()) {
      writer_->flush(deadline_in(kFlushTimeout));
      // Removed while it is held, so that the folder does not fill up; who waits for it notices (see `acquire`).
      unlink(path_.c_str());
    }
    unregister_for_fork(this);
    if (process_ == getpid())
      lock_.release();
    else
      lock_.abandon();
  }

  bool acquire(Deadline deadline) {
    process_ = getpid();
    while (lock_.acquire(path_, FileLock::Kind::exclusive, true, deadline) == FileLock::Result::held) {
      if (lock_.is_at(path_)) return true;
      // The holder before us removed the file that we locked; others lock the new one.
      lock_.release();
    }
    return false;
  }

  void before_fork() override {}
  void after_fork_in_parent() override {}
  void after_fork_in_child() override { lock_.abandon(); }

 private:
  const std::string path_;
  const std::shared_ptr<Writer> writer_;
  pid_t process_ = 0;
  FileLock lock_;
};

}  // namespace

std::unique_ptr<CompileLock> take_compile_lock(const std::string& directory, const KeyHash& hash, Deadline deadline,
                                               std::shared_ptr<Writer> writer) {
  const std::string folder = directory + "/locks";
  mkdir(folder.c_str(), 0700);  // when it cannot be made and is not there, the lock cannot be had either
  auto lock = std::make_unique<FlockCompileLock>(fmt::format("{}/{}", folder, to_hex(hash)), std::move(writer));
  if (!lock->acquire(deadline)) return nullptr;
  return lock;
}

}  // namespace saccade::cache
