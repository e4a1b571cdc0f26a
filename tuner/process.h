// A child process and the line channel to it. Written to live inside any host: it changes no signal handling, leaks no
// descriptor into other children and leaves no zombie, whether the host ignores SIGCHLD, reaps every child itself or
// neither.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace saccade::tuner {

/// The descriptors that a worker finds open, besides standard input (empty), output and error (the host's error).
inline constexpr int kWorkerChannel = 3;  ///< a stream socket: JSON lines in both directions
inline constexpr int kWorkerArena = 4;    ///< memory shared with the tuner, for tables

/// Set in a worker's environment: a process that has it starts no worker.
inline constexpr const char* kWorkerMark = "SACCADE_TUNING_WORKER";

/// Buffered lines over a descriptor.
class LineReader {
 public:
  explicit LineReader(int descriptor) : descriptor_(descriptor) {}
  enum class Event {
    line,
    timeout,
    end,       ///< closed by the other side
    too_long,  ///< more than protocol::kMaxLineBytes without a newline
  };
  /// Waits at most `timeout_ms` (negative: for ever).
  Event next(double timeout_ms, std::string& line);

 private:
  int descriptor_;
  std::string buffer_;
  std::size_t scanned_ = 0;
};

/// Writes a line and its newline; `io_error` when the other side is gone or does not read for ten seconds. No SIGPIPE.
Status send_line(int descriptor, std::string_view line);

class WorkerProcess {
 public:
  /// Starts `executable` in its own process group, so that a terminal's Ctrl-C reaches the tuner alone.
  static Expected<std::unique_ptr<WorkerProcess>> start(const std::string& executable);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  /// Closes the channel, waits a moment for the worker to leave, kills it otherwise, and reaps it.
  ~WorkerProcess();

  Status send(std::string_view line) { return send_line(channel_, line); }
  LineReader::Event receive(double timeout_ms, std::string& line) { return reader_->next(timeout_ms, line); }
  /// SIGKILL, then reaps. What ended the process, in words: "killed by signal 11 (Segmentation fault)", "exit code 3".
  std::string kill_and_describe();
  /// SIGKILL that was not ours: the kernel was out of memory, or a person was out of patience.
  bool was_killed_from_outside() const { return killed_from_outside_; }
  int arena() const { return arena_; }
  pid_t pid() const { return pid_; }

 private:
  WorkerProcess() = default;
  bool reap(double timeout_ms);
  void send_kill() const;

  pid_t pid_ = -1;
  int handle_ = -1;  ///< pidfd, -1 on kernels without: keeps a recycled pid from being hit
  int channel_ = -1;
  int arena_ = -1;
  bool reaped_ = true;  ///< until a child exists
  bool killed_ = false;
  bool killed_from_outside_ = false;
  std::string end_;  ///< how it ended, once reaped
  std::unique_ptr<LineReader> reader_;
};

}  // namespace saccade::tuner
