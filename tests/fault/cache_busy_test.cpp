// Locks that others hold and disks that are full: lookups stay quick, writes are dropped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>

#include "cache/store.h"
#include "tests/fault/cache_child.h"
#include "tests/unit/cache_support.h"

namespace saccade::cache {
namespace {

using ::testing::IsEmpty;
using testing::key_of;
using testing::options_in;
using testing::run_in_child;
using testing::TemporaryDirectory;

using Clock = std::chrono::steady_clock;

std::chrono::milliseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
}

/// Another process that runs SQL on the file and then holds whatever locks that took, until the end of the scope.
class OtherProcess {
 public:
  OtherProcess(const std::string& path, const std::string& sql) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    EXPECT_EQ(pipe(stop_), 0);
    child_ = testing::start_child([&] {
      close(stop_[1]);
      sqlite3* database = nullptr;
      if (sqlite3_open(path.c_str(), &database) != SQLITE_OK) return 1;
      if (sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) return 1;
      if (write(ready[1], "x", 1) != 1) return 1;
      char byte = 0;
      return read(stop_[0], &byte, 1) == 0 ? 0 : 1;
    });
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
  }
  ~OtherProcess() {
    close(stop_[0]);
    close(stop_[1]);
    EXPECT_EQ(testing::wait_for_child(child_).exit_code, 0);
  }

 private:
  int stop_[2] = {-1, -1};
  pid_t child_ = 0;
};

TEST(CacheBusy, AHeldWriteLockDropsWritesAndLetsLookupsThrough) {
  const TemporaryDirectory directory;
  Store::open(options_in(directory.path()))->put_binary("old", {"code", ""}, "");
  {
    const OtherProcess other(directory / "cache-v1.db", "BEGIN EXCLUSIVE");
    const auto result = run_in_child([&] {
      const auto start = Clock::now();
      const auto store = Store::open(options_in(directory.path()));
      CHILD_EXPECT(store->find_binary("old").has_value());
      CHILD_EXPECT(!store->find_binary("absent").has_value());
      CHILD_EXPECT(since(start).count() < 300);
      store->put_binary("new", {"code", ""}, "");
      CHILD_EXPECT(since(start).count() < 300);
      store->flush();
      CHILD_EXPECT(since(start).count() >= 200);  // it did try
      CHILD_EXPECT(store->find_binary("new").has_value());
      CHILD_EXPECT(store->trim(0).status().code() == StatusCode::io_error);
      return 0;
    });
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.warnings(), 1) << result.errors;
  }
  const auto store = Store::open(options_in(directory.path()));
  EXPECT_FALSE(store->find_binary("new").has_value());
  store->put_binary("new", {"code", ""}, "");
  store->flush();
  EXPECT_THAT(store->verify(), IsEmpty());
}

TEST(CacheBusy, WritesResumeWhenTheLockIsFree) {
  const TemporaryDirectory directory;
  const auto store = Store::open(options_in(directory.path()));
  {
    const OtherProcess other(directory / "cache-v1.db", "BEGIN EXCLUSIVE");
    store->put_binary("dropped", {"code", ""}, "");
    store->flush();
  }
  store->put_binary("kept", {"code", ""}, "");
  store->flush();
  const auto fresh = Store::open(options_in(directory.path()));
  EXPECT_FALSE(fresh->find_binary("dropped").has_value());
  EXPECT_TRUE(fresh->find_binary("kept").has_value());
}

TEST(CacheBusy, AfterManyFailedWritesTheDiskIsLeftAlone) {
  const TemporaryDirectory directory;
  const auto store = Store::open(options_in(directory.path()));
  const OtherProcess other(directory / "cache-v1.db", "BEGIN EXCLUSIVE");
  for (int i = 0; i < 8; ++i) {
    store->put_binary(key_of(i), {"code", ""}, "");
    store->flush();
  }
  const auto start = Clock::now();
  for (int i = 0; i < 100; ++i) store->put_binary(key_of(i), {"code", ""}, "");
  store->flush();
  EXPECT_LT(since(start).count(), 200);
}

TEST(CacheBusy, LookupsInRollbackModeWaitOnceAndThenMiss) {
  // There a writer excludes readers, so this is where a lookup can be kept waiting.
  const TemporaryDirectory directory;
  Hooks hooks = default_hooks();
  hooks.is_local_file_system = [](const std::string&) { return false; };
  open_store(options_in(directory.path()), hooks)->put_binary("old", {"code", ""}, "");
  const auto result = run_in_child([&] {
    const auto store = open_store(options_in(directory.path()), hooks);
    {
      const OtherProcess other(directory / "cache-v1-shared.db", "BEGIN EXCLUSIVE");
      auto start = Clock::now();
      CHILD_EXPECT(!store->find_binary("old").has_value());
      CHILD_EXPECT(since(start).count() >= 200);
      CHILD_EXPECT(since(start).count() < 350);
      start = Clock::now();
      for (int i = 0; i < 100; ++i) CHILD_EXPECT(!store->find_binary(key_of(i)).has_value());
      CHILD_EXPECT(since(start).count() < 350);
    }
    CHILD_EXPECT(store->find_binary("old").has_value());
    return 0;
  });
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.warnings(), 1) << result.errors;
}

TEST(CacheBusy, AFileHeldExclusivelyInWalModeIsAMiss) {
  const TemporaryDirectory directory;
  Store::open(options_in(directory.path()))->put_binary("old", {"code", ""}, "");
  const OtherProcess other(directory / "cache-v1.db",
                           "PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE; DELETE FROM tuned; COMMIT");
  const auto result = run_in_child([&] {
    const auto start = Clock::now();
    const auto store = Store::open(options_in(directory.path()));
    CHILD_EXPECT(!store->find_binary("old").has_value());
    CHILD_EXPECT(since(start).count() < 1500);
    store->put_binary("new", {"code", ""}, "");
    store->flush();
    CHILD_EXPECT(store->find_binary("new").has_value());
    return 0;
  });
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.warnings(), 1) << result.errors;
}

/// In a child whose files may not grow beyond `limit`: the usual work, in a fresh folder.
int use_with_file_limit(const std::string& directory, rlim_t limit) {
  const rlimit sizes{limit, limit};
  CHILD_EXPECT(setrlimit(RLIMIT_FSIZE, &sizes) == 0);
  std::mt19937_64 generator(limit);
  {
    const auto store = Store::open(options_in(directory));
    for (int number = 0; number < 60; ++number) {
      std::string code(20000, '\0');
      for (char& c : code) c = static_cast<char>(generator());
      store->put_binary(key_of(number), {code, ""}, "");
      store->flush();
      const auto found = store->find_binary(key_of(number));
      CHILD_EXPECT(found.has_value() && found->code == code);
    }
    store->find_binary("absent");
    static_cast<void>(store->trim(0));
  }
  return 0;
}

TEST(CacheFull, AFullDiskDropsWritesAndHarmsNothing) {
  // RLIMIT_FSIZE is the disk; its signal would kill a process that lets it through.
  for (const rlim_t limit : {0u, 1u, 512u, 4096u, 20000u, 32768u, 65536u, 100000u, 300000u, 1000000u}) {
    const TemporaryDirectory directory(testing::fast_directory());
    // stderr of the child is a pipe, which no such limit concerns.
    const auto result = run_in_child([&] { return use_with_file_limit(directory.path(), limit); });
    EXPECT_EQ(result.exit_code, 0) << limit << ", signal " << result.signal << ": " << result.errors;
    EXPECT_EQ(result.warnings(), 1) << limit << ": " << result.errors;
    const auto store = Store::open(options_in(directory.path()));
    EXPECT_THAT(store->verify(), IsEmpty()) << limit;
    store->put_binary("after", {"code", ""}, "");
    store->flush();
    EXPECT_THAT(store->list(), ::testing::Not(IsEmpty())) << limit;
  }
}

TEST(CacheLock, IsOneProcesssAtATimeAndFreeAfterwards) {
  const TemporaryDirectory directory;
  const auto one = Store::open(options_in(directory.path()));
  const auto two = Store::open(options_in(directory.path()));
  auto lock = one->lock("key", 0);
  ASSERT_NE(lock, nullptr);
  EXPECT_EQ(two->lock("key", 0), nullptr);
  EXPECT_NE(two->lock("another key", 0), nullptr);
  const auto start = Clock::now();
  EXPECT_EQ(two->lock("key", 100), nullptr);
  EXPECT_GE(since(start).count(), 100);
  EXPECT_LT(since(start).count(), 400);
  lock.reset();
  EXPECT_NE(two->lock("key", 0), nullptr);
}

TEST(CacheLock, LeavesNoFileBehind) {
  const TemporaryDirectory directory;
  const auto store = Store::open(options_in(directory.path()));
  for (int number = 0; number < 20; ++number) ASSERT_NE(store->lock(key_of(number), 0), nullptr);
  EXPECT_TRUE(std::filesystem::is_empty(directory / "locks"));
}

TEST(CacheLock, IsFreedByTheDeathOfItsHolder) {
  const TemporaryDirectory directory;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t holder = testing::start_child([&] {
    const auto store = Store::open(options_in(directory.path()));
    const auto lock = store->lock("key", 0);
    if (lock == nullptr || write(ready[1], "x", 1) != 1) return 1;
    pause();
    return 0;
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const auto store = Store::open(options_in(directory.path()));
  EXPECT_EQ(store->lock("key", 0), nullptr);
  kill(holder, SIGKILL);
  testing::wait_for_child(holder);
  EXPECT_NE(store->lock("key", 0), nullptr);
  close(ready[0]);
  close(ready[1]);
}

TEST(CacheLock, TheNextHolderFindsWhatTheLastOnePut) {
  const TemporaryDirectory directory;
  const auto one = Store::open(options_in(directory.path()));
  const auto two = Store::open(options_in(directory.path()));
  for (int number = 0; number < 20; ++number) {
    auto lock = one->lock(key_of(number), 0);
    ASSERT_NE(lock, nullptr);
    one->put_binary(key_of(number), {"code", ""}, "");
    lock.reset();
    lock = two->lock(key_of(number), 0);
    ASSERT_NE(lock, nullptr);
    EXPECT_TRUE(two->find_binary(key_of(number)).has_value());
  }
}

TEST(CacheLock, OutlivesItsStore) {
  const TemporaryDirectory directory;
  auto store = Store::open(options_in(directory.path()));
  auto lock = store->lock("key", 0);
  store.reset();
  const auto other = Store::open(options_in(directory.path()));
  EXPECT_EQ(other->lock("key", 0), nullptr);
  lock.reset();
  EXPECT_NE(other->lock("key", 0), nullptr);
}

}  // namespace
}  // namespace saccade::cache
