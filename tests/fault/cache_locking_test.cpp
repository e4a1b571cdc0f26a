// Locks that the file system refuses, as NFS does without its lock daemon: no error and no wait, only misses and one warning.
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>

#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <memory>

#include "cache/hooks.h"
#include "cache/store.h"
#include "tests/fault/cache_child.h"
#include "tests/unit/cache_support.h"

namespace {

bool locks_are_refused = false;
int refusals = 0;  ///< of SQLite's locks

int fcntl_without_locks(int descriptor, int command, ...) {
  va_list list;
  va_start(list, command);
  void* argument = va_arg(list, void*);
  va_end(list);
  if (command != F_SETLK && command != F_SETLKW && command != F_GETLK) return fcntl(descriptor, command, argument);
  ++refusals;
  errno = ENOLCK;
  return -1;
}

/// Of this process, from now on.
bool refuse_locks() {
  locks_are_refused = true;
  sqlite3_vfs* const files = sqlite3_vfs_find(nullptr);
  return files->xSetSystemCall(files, "fcntl", reinterpret_cast<sqlite3_syscall_ptr>(fcntl_without_locks)) == SQLITE_OK;
}

}  // namespace

/// In place of the C library's.
extern "C" int flock(int descriptor, int operation) noexcept {
  if (!locks_are_refused) return static_cast<int>(syscall(SYS_flock, descriptor, operation));
  errno = ENOLCK;
  return -1;
}

namespace saccade::cache {
namespace {

using Clock = std::chrono::steady_clock;
using testing::options_in;
using testing::run_in_child;
using testing::TemporaryDirectory;

class CacheLocking : public ::testing::TestWithParam<bool> {
 protected:
  CacheLocking() {
    const bool is_local = GetParam();
    hooks_.is_local_file_system = [is_local](const std::string&) { return is_local; };
  }
  std::unique_ptr<Store> open() const { return open_store(options_in(directory_.path()), hooks_); }

  TemporaryDirectory directory_;
  Hooks hooks_ = default_hooks();
};

TEST_P(CacheLocking, RefusedByTheFileSystemCostsOnlyTheEntries) {
  open()->put_binary("old", {"code", ""}, "");
  const auto result = run_in_child([&] {
    CHILD_EXPECT(refuse_locks());
    const auto start = Clock::now();
    const auto store = open();
    const auto old = store->find_binary("old");
    CHILD_EXPECT(!old || old->code == "code");
    CHILD_EXPECT(store->lock("new", 5000) == nullptr);
    store->put_binary("new", {"new code", ""}, "");
    store->flush();
    const auto fresh = store->find_binary("new");
    CHILD_EXPECT(fresh && fresh->code == "new code");
    CHILD_EXPECT(refusals > 0);
    CHILD_EXPECT(Clock::now() - start < std::chrono::seconds(2));
    return 0;
  });
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_LE(result.warnings(), 1) << result.errors;
  const auto store = open();  // locks work again
  EXPECT_TRUE(store->find_binary("old").has_value());
  EXPECT_TRUE(store->verify().empty());
}

INSTANTIATE_TEST_SUITE_P(FileSystem, CacheLocking, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "local" : "network"; });

}  // namespace
}  // namespace saccade::cache
