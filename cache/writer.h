// The background thread that writes to the user database, so that nobody waits for a disk.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cache/deadline.h"
#include "cache/row.h"

namespace saccade::cache {

struct WriteTask {
  enum class Kind { put, touch, recover };
  Kind kind = Kind::put;
  Table table = Table::binary;
  std::shared_ptr<const std::string> key;
  std::shared_ptr<const Row> row;  ///< of a put
  std::int64_t created = 0, last_used = 0;
};

class Writer {
 public:
  /// Called on the writer thread, for a batch of tasks in the order in which they came. What it throws (no memory to
  /// compress with, say) costs the batch.
  using Sink = std::function<void(const std::vector<WriteTask>&)>;

  explicit Writer(Sink sink) : sink_(std::move(sink)) { batch_.reserve(kBatchTasks); }
  ~Writer() { stop(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Starts the thread when needed. False when the queue is full or no thread can be had: the task is dropped.
  bool enqueue(WriteTask task);
  /// Waits until everything queued before is written or dropped; false when the deadline came first.
  bool flush(Deadline deadline);
  void flush();
  /// Writes what is queued, then ends the thread; nothing is taken afterwards.
  void stop();

 private:
  static constexpr std::size_t kMaximumTasks = 4096;
  static constexpr std::size_t kMaximumBytes = std::size_t{128} << 20;
  static constexpr std::size_t kBatchTasks = 64;
  static constexpr std::size_t kBatchBytes = std::size_t{16} << 20;

  static std::size_t bytes_of(const WriteTask& task);
  bool start();
  void run();
  void take_batch();
  void write_batch() noexcept;

  const Sink sink_;
  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<WriteTask> queue_;
  std::vector<WriteTask> batch_;  // the writer thread's; reserved, so that taking one cannot fail
  std::size_t queued_bytes_ = 0;
  std::uint64_t enqueued_ = 0, completed_ = 0;  // tasks so far
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace saccade::cache
