#include "tuner/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tuner/limits.h"
#include "tuner/protocol.h"

namespace saccade::tuner {
namespace {

int poll_timeout(double milliseconds) {
  if (milliseconds < 0) return -1;
  return static_cast<int>(std::min(std::ceil(milliseconds), 1e9));
}

std::string describe(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return fmt::format("exit code {}", info.si_status);
  return fmt::format("killed by signal {} ({})", info.si_status, strsignal(info.si_status));
}

/// Descriptors that the child's fixed numbers cannot collide with.
int above_standard(int descriptor) {
  const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, 16);
  close(descriptor);
  return moved;
}

/// The host's environment, and the mark of a worker.
std::vector<char*> worker_environment(std::string& mark) {
  std::vector<char*> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    variables.push_back(*variable);
  mark = fmt::format("{}=1", kWorkerMark);
  variables.push_back(mark.data());
  variables.push_back(nullptr);
  return variables;
}

/// Straight to the kernel: glibc 2.36 declares pidfd_open without C linkage. Close-on-exec by definition.
int open_pidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

class SpawnActions {
 public:
  SpawnActions() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnActions() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  void connect(int channel, int arena) {
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    // A candidate's or a library's print must not end up in the protocol, nor in the host's results; warnings may.
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    if (fcntl(2, F_GETFD) < 0) posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, channel, kWorkerChannel);
    posix_spawn_file_actions_adddup2(&actions, arena, kWorkerArena);
    // Hosts forget close-on-exec: a listening socket of theirs must not live on in a worker.
    posix_spawn_file_actions_addclosefrom_np(&actions, kWorkerArena + 1);
  }

  void reset_signals() {
    sigset_t set;
    sigemptyset(&set);
    posix_spawnattr_setsigmask(&attributes, &set);
    sigfillset(&set);
    posix_spawnattr_setsigdefault(&attributes, &set);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

}  // namespace

LineReader::Event LineReader::next(double timeout_ms, std::string& line) {
  const double deadline = steady_now_ms() + timeout_ms;
  while (true) {
    const std::size_t newline = buffer_.find('\n', scanned_);
    if (newline != std::string::npos) {
      line.assign(buffer_, 0, newline);
      buffer_.erase(0, newline + 1);
      scanned_ = 0;
      return Event::line;
    }
    scanned_ = buffer_.size();
    if (buffer_.size() > protocol::kMaxLineBytes) return Event::too_long;
    const double left = timeout_ms < 0 ? -1 : std::max(0.0, deadline - steady_now_ms());
    pollfd waiting{descriptor_, POLLIN, 0};
    const int ready = poll(&waiting, 1, poll_timeout(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return Event::timeout;
    char chunk[16384];
    const ssize_t count = ready < 0 ? -1 : read(descriptor_, chunk, sizeof chunk);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return Event::end;
    buffer_.append(chunk, static_cast<std::size_t>(count));
  }
}

Status send_line(int descriptor, std::string_view line) {
  constexpr double kPatienceMs = 10'000;
  std::string text(line);
  text += '\n';
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t count = ::send(descriptor, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return Status::io_error(fmt::format("the other process is gone: {}", std::strerror(errno)));
    pollfd waiting{descriptor, POLLOUT, 0};
    if (poll(&waiting, 1, poll_timeout(kPatienceMs)) == 0) return Status::io_error("the other process does not read");
  }
  return Status();
}

Expected<std::unique_ptr<WorkerProcess>> WorkerProcess::start(const std::string& executable) {
  // SACCADE_WORKER may name a program that tunes, the host itself above all: each would start the next, without end.
  if (std::getenv(kWorkerMark) != nullptr) {
    return Status::invalid_argument(
        fmt::format("this process was started as a tuning worker ({} is set) and does not tune itself. If it is no "
                    "saccade-worker, SACCADE_WORKER names the wrong program",
                    kWorkerMark));
  }
  std::unique_ptr<WorkerProcess> worker(new WorkerProcess);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Status::io_error(fmt::format("no socket pair for the tuning worker: {}", std::strerror(errno)));
  }
  worker->channel_ = above_standard(ends[0]);
  const int child_channel = above_standard(ends[1]);
  worker->arena_ = above_standard(memfd_create("saccade-tables", MFD_CLOEXEC));
  SpawnActions spawn;
  spawn.connect(child_channel, worker->arena_);
  spawn.reset_signals();
  std::string name = executable;
  char* arguments[] = {name.data(), nullptr};
  std::string mark;
  const std::vector<char*> environment = worker_environment(mark);
  const int error = (worker->channel_ < 0 || child_channel < 0 || worker->arena_ < 0)
                        ? errno
                        : posix_spawn(&worker->pid_, executable.c_str(), &spawn.actions, &spawn.attributes, arguments,
                                      environment.data());
  if (child_channel >= 0) close(child_channel);
  if (error != 0) {
    return Status::io_error(fmt::format("cannot start the tuning worker {}: {}", executable, std::strerror(error)));
  }
  worker->reaped_ = false;
  worker->handle_ = open_pidfd(worker->pid_);
  worker->reader_ = std::make_unique<LineReader>(worker->channel_);
  return worker;
}

void WorkerProcess::send_kill() const {
  if (handle_ >= 0) {
    syscall(SYS_pidfd_send_signal, handle_, SIGKILL, nullptr, 0);
  } else if (pid_ > 0) {
    kill(pid_, SIGKILL);
  }
}

bool WorkerProcess::reap(double timeout_ms) {
  if (reaped_) return true;
  const double deadline = steady_now_ms() + timeout_ms;
  while (true) {
    siginfo_t info{};
    const int result = handle_ >= 0 ? waitid(P_PIDFD, static_cast<id_t>(handle_), &info, WEXITED | WNOHANG)
                                    : waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG);
    if (result == 0 && info.si_pid != 0) {
      end_ = describe(info);
      killed_from_outside_ = info.si_code != CLD_EXITED && info.si_status == SIGKILL && !killed_;
      reaped_ = true;
      return true;
    }
    if (result != 0 && errno == ECHILD) {
      // The host ignores SIGCHLD or reaps every child: how the worker ended is lost, but not that it did.
      end_ = "ended (the host process took its exit status)";
      reaped_ = true;
      return true;
    }
    const double left = deadline - steady_now_ms();
    if (left <= 0) return false;
    pollfd waiting{handle_, POLLIN, 0};
    poll(&waiting, handle_ >= 0 ? 1 : 0, poll_timeout(handle_ >= 0 ? left : std::min(left, 5.0)));
  }
}

std::string WorkerProcess::kill_and_describe() {
  constexpr double kGraceMs = 50, kDriverPatienceMs = 10'000;
  // A worker that closed its channel is on its way out: its own exit says more than our signal.
  if (!reap(kGraceMs)) {
    killed_ = true;
    send_kill();
    reap(kDriverPatienceMs);
  }
  if (!reaped_) return "did not end within ten seconds of SIGKILL";
  return killed_ ? "killed by the tuner" : end_;
}

WorkerProcess::~WorkerProcess() {
  constexpr double kLeaveMs = 2'000, kDriverPatienceMs = 10'000;
  if (channel_ >= 0) close(channel_);
  if (!reap(kLeaveMs)) {
    send_kill();
    reap(kDriverPatienceMs);
  }
  if (arena_ >= 0) close(arena_);
  if (handle_ >= 0) close(handle_);
}

}  // namespace saccade::tuner
