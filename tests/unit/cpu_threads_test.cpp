// More threads than can be had are an error, or work goes on with fewer: never the end of the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "base/together.h"
#include "runtime/cpu/thread_check.h"
#include "runtime/device.h"

namespace saccade {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kAddressSpaceCanBeLimited = false;
#else
constexpr bool kAddressSpaceCanBeLimited = true;
#endif

/// In a process of its own; its exit code.
int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Leaves room for one more thread's stack, not for two.
bool limit_address_space() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return false;
  unsigned long pages = 0;
  const bool read = std::fscanf(file, "%lu", &pages) == 1;
  std::fclose(file);
  rlimit stack{};
  getrlimit(RLIMIT_STACK, &stack);
  const rlim_t stack_bytes = stack.rlim_cur == RLIM_INFINITY ? rlim_t{2} << 20 : stack.rlim_cur;  // glibc's default
  const rlimit limit{pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + stack_bytes * 3 / 2, RLIM_INFINITY};
  return read && setrlimit(RLIMIT_AS, &limit) == 0;
}

TEST(CpuThreads, MoreThanTheMachineHasUseForAreRefused) {
  EXPECT_GE(cpu::most_threads(), 16);
  for (const int threads : {-1, cpu::most_threads() + 1, 1 << 30}) {
    const auto device = cpu_device(threads);
    ASSERT_FALSE(device.ok());
    if (device.status().code() == StatusCode::unsupported) GTEST_SKIP() << device.status().message();
    EXPECT_EQ(device.status().code(), StatusCode::invalid_argument);
    EXPECT_THAT(device.status().message(), ::testing::HasSubstr(std::to_string(cpu::most_threads())));
  }
}

// In children, since a number that was reached is not tried again.
TEST(CpuThreads, AsManyAsAreAllowedCanBeStarted) {
  EXPECT_EQ(in_child([] { return cpu::check_threads(cpu::most_threads()).ok() ? 0 : 1; }), 0);
  EXPECT_TRUE(cpu::check_threads(0).ok());
}

TEST(CpuThreads, ThatCannotBeStartedAreAnErrorThatSaysHowManyCan) {
  if (!kAddressSpaceCanBeLimited) GTEST_SKIP() << "a sanitizer needs the address space";
  EXPECT_EQ(in_child([] {
              if (!limit_address_space()) return 2;
              const Status refused = cpu::check_threads(cpu::most_threads());
              if (refused.code() != StatusCode::out_of_memory) return 3;
              // What it says works, also when asked again.
              const std::string& text = refused.message();
              const int fewer = std::atoi(text.c_str() + text.find("set the number of threads to ") + 29);
              if (fewer < 1 || fewer >= cpu::most_threads()) return 4;
              if (!cpu::check_threads(fewer).ok()) return 5;
              return cpu::check_threads(cpu::most_threads()).ok() ? 6 : 0;
            }),
            0);
}

/// Threads that did `items` of work, each of which lasts until there are `together` threads; 0 if some were not done.
std::size_t threads_that_shared(std::size_t wanted, int items, std::size_t together) {
  std::atomic<int> next{0}, done{0};
  std::mutex mutex;
  std::set<std::thread::id> threads;
  work_together(wanted, [&] {
    while (next++ < items) {
      for (bool enough = false; !enough; std::this_thread::yield()) {
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
        enough = threads.size() >= together;
      }
      ++done;
    }
  });
  return done == items ? threads.size() : 0;
}

TEST(WorkTogether, IsSharedByAsManyThreadsAsAreWanted) {
  EXPECT_EQ(threads_that_shared(0, 5, 1), 1U);
  EXPECT_EQ(threads_that_shared(1, 5, 1), 1U);
  EXPECT_EQ(threads_that_shared(4, 4, 4), 4U);
}

TEST(WorkTogether, IsDoneByFewerThreadsWhereTheProcessMayHaveNoMore) {
  if (!kAddressSpaceCanBeLimited) GTEST_SKIP() << "a sanitizer needs the address space";
  const int threads = in_child([] {
    if (!limit_address_space()) return 100;
    return static_cast<int>(threads_that_shared(64, 1000, 2));
  });
  EXPECT_GE(threads, 2);
  EXPECT_LE(threads, 20);  // stacks of threads that have ended are used again
}

}  // namespace
}  // namespace saccade
