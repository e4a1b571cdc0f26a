// Several processes: killed, forked, racing for one file and one lock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "cache/store.h"
#include "tests/fault/cache_child.h"
#include "tests/unit/cache_support.h"

namespace saccade::cache {
namespace {

using ::testing::IsEmpty;
using testing::key_of;
using testing::options_in;
using testing::run_in_child;
using testing::start_child;
using testing::TemporaryDirectory;
using testing::wait_for_child;

std::string code_of(int number) {
  std::mt19937_64 generator(static_cast<std::uint64_t>(number) + 1);
  return testing::code_like_bytes(static_cast<std::size_t>(100 + number * 977 % 60000), generator);
}

/// A pipe that tells one process about the progress of another.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void signal() const { EXPECT_EQ(write(ends_[1], "x", 1), 1); }
  void wait() const {
    char byte = 0;
    EXPECT_EQ(read(ends_[0], &byte, 1), 1);
  }
  int read_end() const { return ends_[0]; }
  /// In the waiting process: then `wait` also ends when the others have.
  void close_write_end() {
    close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
};

TEST(CacheProcess, KilledWhileWritingLeavesASoundFile) {
  auto generator = testing::seeded_generator();
  const TemporaryDirectory directory;
  int found = 0;
  for (int round = 0; round < 25; ++round) {
    const Pipe progress;
    const pid_t child = start_child([&]() -> int {
      const auto store = Store::open(options_in(directory.path()));
      for (int number = round * 20;; ++number) {
        store->put_binary(key_of(number), {code_of(number), "{}"}, "");
        if (number % 3 == 0) store->flush();
        progress.signal();
      }
    });
    // Killed at some moment of its work, which is counted in entries and not in time.
    for (auto entries = generator() % 12 + (round == 0 ? 4 : 0); entries > 0; --entries) progress.wait();
    kill(child, SIGKILL);
    EXPECT_EQ(wait_for_child(child).signal, SIGKILL);
    const auto store = Store::open(options_in(directory.path()));
    ASSERT_THAT(store->verify(), IsEmpty()) << "round " << round;
    for (int number = 0; number < (round + 1) * 20; ++number) {
      const auto binary = store->find_binary(key_of(number));
      if (!binary.has_value()) continue;
      ++found;
      ASSERT_EQ(binary->code, code_of(number)) << "round " << round;
    }
  }
  EXPECT_GT(found, 0);
  EXPECT_THAT(testing::files_starting_with(directory.path(), "cache-v1.db.corrupt-"), IsEmpty());
}

TEST(CacheProcess, KilledWhileTheFileIsCreatedLeavesAUsableFolder) {
  auto generator = testing::seeded_generator();
  for (int round = 0; round < 30; ++round) {
    const TemporaryDirectory directory(testing::fast_directory());
    const Pipe started;
    const pid_t child = start_child([&] {
      started.signal();
      const auto store = Store::open(options_in(directory.path()));
      pause();
      return 0;
    });
    started.wait();
    // Busy work of random length: opening takes about a millisecond.
    volatile std::uint64_t spin = generator() % 2'000'000;
    while (spin > 0) spin = spin - 1;
    kill(child, SIGKILL);
    wait_for_child(child);
    Store::open(options_in(directory.path()))->put_binary("key", {"code", ""}, "");
    const auto store = Store::open(options_in(directory.path()));
    ASSERT_TRUE(store->find_binary("key").has_value()) << "round " << round;
    ASSERT_THAT(store->verify(), IsEmpty());
  }
}

TEST(CacheProcess, TwoProcessesWriteAtOnce) {
  const TemporaryDirectory directory(testing::fast_directory());
  constexpr int kEach = 150;
  std::vector<pid_t> children;
  for (const int first : {0, kEach / 2}) {  // half of the keys are written by both
    children.push_back(start_child([&, first] {
      const auto store = Store::open(options_in(directory.path()));
      for (int number = first; number < first + kEach; ++number) {
        store->put_binary(key_of(number), {code_of(number), "{}"}, "");
        if (number % 10 == 0) store->flush();
      }
      store->flush();
      return 0;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(wait_for_child(child).exit_code, 0);
  const auto store = Store::open(options_in(directory.path()));
  EXPECT_THAT(store->verify(), IsEmpty());
  int found = 0;
  for (int number = 0; number < kEach * 3 / 2; ++number) {
    const auto binary = store->find_binary(key_of(number));
    if (!binary.has_value()) continue;  // dropped because the other had the file too long
    ++found;
    ASSERT_EQ(binary->code, code_of(number));
  }
  EXPECT_GE(found, kEach);
}

TEST(CacheProcess, SixtyFourProcessesStartColdAndCompileAtMostTwice) {
  constexpr int kProcesses = 64;
  const TemporaryDirectory directory;
  const std::string compiles = directory / "compiles";
  Pipe start;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    children.push_back(start_child([&] {
      start.close_write_end();
      char byte = 0;
      CHILD_EXPECT(read(start.read_end(), &byte, 1) == 0);
      const auto store = Store::open(options_in(directory / "cache"));
      CHILD_EXPECT(!store->user_path().empty());
      auto binary = store->find_binary("key");
      if (!binary.has_value()) {
        const auto lock = store->lock("key", 30000);
        CHILD_EXPECT(lock != nullptr);
        binary = store->find_binary("key");
        if (!binary.has_value()) {
          const int file = open(compiles.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
          CHILD_EXPECT(write(file, "x", 1) == 1);
          close(file);
          store->put_binary("key", {code_of(7), "{}"}, "");
          binary = store->find_binary("key");
        }
      }
      CHILD_EXPECT(binary.has_value() && binary->code == code_of(7));
      return 0;
    }));
  }
  start.close_write_end();
  for (const pid_t child : children) EXPECT_EQ(wait_for_child(child).exit_code, 0);
  const auto count = std::filesystem::file_size(compiles);
  EXPECT_GE(count, 1u);
  EXPECT_LE(count, 2u);
  EXPECT_THAT(Store::open(options_in(directory / "cache"))->verify(), IsEmpty());
}

TEST(CacheProcess, ManyProcessesFindTheSameDamagedFile) {
  const TemporaryDirectory directory(testing::fast_directory());
  testing::write_file(directory / "cache-v1.db", std::string(20000, 'x'));
  std::vector<pid_t> children;
  for (int process = 0; process < 16; ++process)
    children.push_back(start_child([&, process] {
      const auto store = Store::open(options_in(directory.path()));
      store->put_binary(key_of(process), {code_of(process), ""}, "");
      store->flush();
      CHILD_EXPECT(store->find_binary(key_of(process))->code == code_of(process));
      return 0;
    }));
  for (const pid_t child : children) EXPECT_EQ(wait_for_child(child).exit_code, 0);
  const auto store = Store::open(options_in(directory.path()));
  EXPECT_THAT(store->verify(), IsEmpty());
  EXPECT_EQ(testing::files_starting_with(directory.path(), "cache-v1.db.corrupt-").size(), 1u);
}

TEST(CacheFork, ParentAndChildBothGoOn) {
  const TemporaryDirectory directory;
  {
    const auto store = Store::open(options_in(directory.path()));
    store->put_binary("before", {"code before", ""}, "");
    store->flush();
    store->put_binary("queued", {"code queued", ""}, "");
    const auto result = run_in_child([&] {
      CHILD_EXPECT(store->find_binary("before").has_value());
      CHILD_EXPECT(store->find_binary("queued").has_value());
      store->put_binary("child", {"code of the child", ""}, "");
      store->flush();
      CHILD_EXPECT(store->verify().empty());
      CHILD_EXPECT(store->statistics().size() == 1);
      return 0;
    });
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.warnings(), 0) << result.errors;
    store->put_binary("parent", {"code of the parent", ""}, "");
  }
  const auto store = Store::open(options_in(directory.path()));
  for (const char* key : {"before", "queued", "child", "parent"})
    EXPECT_TRUE(store->find_binary(key).has_value()) << key;
  EXPECT_THAT(store->verify(), IsEmpty());
}

TEST(CacheFork, AChildMayCloseTheStoreItInherited) {
  const TemporaryDirectory directory;
  auto store = Store::open(options_in(directory.path()));
  store->put_binary("one", {"code", ""}, "");
  const auto result = run_in_child([&] {
    store->put_binary("two", {"code", ""}, "");
    store.reset();
    CHILD_EXPECT(Store::open(options_in(directory.path()))->find_binary("two").has_value());
    return 0;
  });
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  store->flush();
  EXPECT_THAT(store->verify(), IsEmpty());
}

TEST(CacheFork, WhileOtherThreadsUseTheStore) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own allocator may be locked in a child that is forked while other threads allocate";
#endif
  const TemporaryDirectory packs(testing::fast_directory()), directory(testing::fast_directory());
  Store::open(options_in(packs.path()))->put_binary("in the pack", {"code", ""}, "");
  Options options = options_in(directory.path());
  options.packs = {testing::make_pack(packs / "cache-v1.db", packs / "pack.db")};
  const auto store = Store::open(options);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread)
    threads.emplace_back([&, thread] {
      for (int number = thread; !stop; number += 3) {
        store->put_binary(key_of(number % 500), {code_of(number % 500), ""}, "");
        store->find_binary(key_of(number + 1000));
        if (thread == 0 && number % 30 == 0) store->list();
        if (thread == 1 && number % 10 == 1) store->flush();
        if (thread == 2) store->lock(key_of(number % 5), 0);
      }
    });
  for (int round = 0; round < 30 && !HasFailure(); ++round) {
    const pid_t child = start_child([&] {
      alarm(20);  // a mutex left locked would hang it
      CHILD_EXPECT(store->find_binary("in the pack").has_value());
      CHILD_EXPECT(!store->find_binary("nowhere").has_value());
      store->put_binary(key_of(10000 + round), {code_of(round), ""}, "");
      store->flush();
      CHILD_EXPECT(store->find_binary(key_of(10000 + round)).has_value());
      return 0;
    });
    const auto result = wait_for_child(child);
    EXPECT_EQ(result.exit_code, 0) << "round " << round << ", signal " << result.signal;
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(store->verify(), IsEmpty());
}

TEST(CacheFork, AChildMadeWithoutHandlersGetsMisses) {
  const TemporaryDirectory directory;
  const auto store = Store::open(options_in(directory.path()));
  store->put_binary("key", {"code", ""}, "");
  store->flush();
  const pid_t child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (child == 0) {
    store->put_binary("other", {"code", ""}, "");
    store->flush();
    const bool missed = !store->find_binary("key").has_value() && store->lock("key", 0) == nullptr;
    _exit(missed && store->verify().empty() && store->list().empty() ? 0 : 1);
  }
  EXPECT_EQ(wait_for_child(child).exit_code, 0);
  EXPECT_TRUE(store->find_binary("key").has_value());
}

TEST(CacheFork, TheChildDoesNotReleaseTheParentsCompileLock) {
  const TemporaryDirectory directory;
  const auto store = Store::open(options_in(directory.path()));
  auto lock = store->lock("key", 0);
  ASSERT_NE(lock, nullptr);
  EXPECT_EQ(run_in_child([&] {
              lock.reset();
              return 0;
            }).exit_code,
            0);
  const auto try_lock = [&] {
    return run_in_child([&] { return Store::open(options_in(directory.path()))->lock("key", 0) == nullptr ? 1 : 0; })
        .exit_code;
  };
  EXPECT_EQ(try_lock(), 1);
  lock.reset();
  EXPECT_EQ(try_lock(), 0);
}

TEST(CacheFork, AChildThatLivesOnDoesNotKeepTheParentsCompileLock) {
  const TemporaryDirectory directory;
  Pipe ready, end;
  const pid_t parent = start_child([&] {
    const auto store = Store::open(options_in(directory.path()));
    const auto lock = store->lock("key", 0);
    CHILD_EXPECT(lock != nullptr);
    start_child([&] {
      ready.signal();
      end.wait();
      return 0;
    });
    pause();
    return 0;
  });
  ready.wait();
  kill(parent, SIGKILL);
  wait_for_child(parent);
  EXPECT_NE(Store::open(options_in(directory.path()))->lock("key", 0), nullptr);
  end.signal();
}

}  // namespace
}  // namespace saccade::cache
