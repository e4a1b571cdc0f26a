// Running a piece of a test in a process of its own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>

#include "tests/unit/cache_support.h"

namespace saccade::cache::testing {

constexpr uid_t kNobody = 65534;

struct ChildResult {
  int exit_code = -1;  ///< -1 when a signal ended it
  int signal = 0;
  std::string errors;  ///< what it wrote to stderr

  /// Lines that the logger marked as warnings.
  long warnings() const {
    long count = 0;
    for (std::size_t at = errors.find("saccade: warning:"); at != std::string::npos;
         at = errors.find("saccade: warning:", at + 1))
      ++count;
    return count;
  }
};

/// Starts `body` in a child, which ends with its result as exit code and is killed after a minute.
inline pid_t start_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  return child;
}

inline ChildResult wait_for_child(pid_t child) {
  ChildResult result;
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

/// Runs `body` to its end and keeps what it wrote to stderr.
inline ChildResult run_in_child(const std::function<int()>& body) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = start_child([&] {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    return body();
  });
  close(ends[1]);
  std::string errors;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
    errors.append(buffer, static_cast<std::size_t>(count));
  close(ends[0]);
  ChildResult result = wait_for_child(child);
  result.errors = std::move(errors);
  return result;
}

/// For a child of a test that runs as root, whom no permission stops. False when it cannot be done.
inline bool become_nobody() { return setgid(kNobody) == 0 && setuid(kNobody) == 0; }

}  // namespace saccade::cache::testing

/// In a child: ends it with the line's number when the condition does not hold. (An exit code has 8 bits.)
#define CHILD_EXPECT(condition)                                                     \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                                     \
    }                                                                               \
  } while (false)
