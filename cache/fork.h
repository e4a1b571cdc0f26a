// Keeping the cache usable across fork(). SQLite forbids carrying a connection into a child, and its bookkeeping of
// POSIX locks is wrong there; so everything is closed before the fork and reopened lazily on both sides.
#pragma once

namespace saccade::cache {

/// Called by fork() through pthread_atfork, on the forking thread. `before_fork` takes the object's mutexes and brings
/// it to rest; one of the two others follows and releases them.
class ForkParticipant {
 public:
  virtual void before_fork() = 0;
  virtual void after_fork_in_parent() = 0;
  virtual void after_fork_in_child() = 0;

 protected:
  ~ForkParticipant() = default;
};

/// A participant must not call these while it holds a mutex that `before_fork` of any participant takes.
void register_for_fork(ForkParticipant* participant);
void unregister_for_fork(ForkParticipant* participant);

}  // namespace saccade::cache
