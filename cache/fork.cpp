#include "cache/fork.h"

#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <mutex>
#include <vector>

namespace saccade::cache {
namespace {

/// A process made by clone() or _Fork() runs no handlers; there the entries are the parent's and must not be called.
struct Entry {
  ForkParticipant* participant = nullptr;
  pid_t process = 0;
};

struct Registry {
  std::mutex mutex;
  std::vector<Entry> entries;
  pid_t forking = 0;  // the process that is inside fork()
};

/// Never destroyed: a thread may fork while static objects are being destroyed.
Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

void prepare() {
  registry().mutex.lock();
  registry().forking = getpid();
  for (const Entry& entry : registry().entries)
    if (entry.process == getpid()) entry.participant->before_fork();
}

void resume_parent() {
  for (const Entry& entry : registry().entries)
    if (entry.process == getpid()) entry.participant->after_fork_in_parent();
  registry().mutex.unlock();
}

void resume_child() {
  for (Entry& entry : registry().entries) {
    if (entry.process != registry().forking) continue;
    entry.participant->after_fork_in_child();
    entry.process = getpid();
  }
  registry().mutex.unlock();
}

}  // namespace

void register_for_fork(ForkParticipant* participant) {
  [[maybe_unused]] static const int once = pthread_atfork(&prepare, &resume_parent, &resume_child);
  const std::lock_guard lock(registry().mutex);
  registry().entries.push_back({participant, getpid()});
}

void unregister_for_fork(ForkParticipant* participant) {
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().entries, [participant](const Entry& entry) { return entry.participant == participant; });
}

}  // namespace saccade::cache
