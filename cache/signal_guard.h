// Files may hit RLIMIT_FSIZE on a thread of the host program, where the default is to die of SIGXFSZ.
#pragma once

#include <signal.h>

namespace saccade::cache {

/// While it lives, a write beyond the limit is an error (EFBIG) on this thread and nothing more.
class FileSizeSignalBlocked {
 public:
  FileSizeSignalBlocked() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~FileSizeSignalBlocked() {
    const timespec no_wait{};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &no_wait);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeSignalBlocked(const FileSizeSignalBlocked&) = delete;
  FileSizeSignalBlocked& operator=(const FileSizeSignalBlocked&) = delete;

 private:
  sigset_t signal_{}, before_{};
  bool was_pending_ = false;
};

}  // namespace saccade::cache
