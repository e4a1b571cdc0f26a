#include "cache/writer.h"

#include <signal.h>

#include <exception>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace saccade::cache {

std::size_t Writer::bytes_of(const WriteTask& task) {
  return (task.key == nullptr ? 0 : task.key->size()) + (task.row == nullptr ? 0 : task.row->content.size());
}

void Writer::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Writer::start() {
  if (thread_.joinable()) return true;
  // The host's signals are not for this thread. With SIGXFSZ blocked, a write beyond RLIMIT_FSIZE is an error, not
  // death.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {  // no more threads for this process: the cache stays in memory
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread_.joinable();
}

bool Writer::enqueue(WriteTask task) {
  const std::size_t bytes = bytes_of(task);
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || queue_.size() >= kMaximumTasks || queued_bytes_ + bytes > kMaximumBytes || !start()) return false;
    queue_.push_back(std::move(task));
    queued_bytes_ += bytes;
    ++enqueued_;
  }
  work_.notify_one();
  return true;
}

bool Writer::flush(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const std::uint64_t target = enqueued_;
  return done_.wait_until(lock, deadline, [&] { return completed_ >= target; });
}

void Writer::flush() {
  std::unique_lock lock(mutex_);
  const std::uint64_t target = enqueued_;
  done_.wait(lock, [&] { return completed_ >= target; });
}

void Writer::take_batch() {
  std::size_t bytes = 0;
  while (!queue_.empty() && batch_.size() < kBatchTasks && bytes < kBatchBytes) {
    bytes += bytes_of(queue_.front());
    batch_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  queued_bytes_ -= bytes;
}

void Writer::write_batch() noexcept {
  try {
    sink_(batch_);
  } catch (const std::exception& error) {
    // One warning, whatever was thrown; and memory may still be short.
    try {
      log::warn_once("cache: entries could not be packed for the user database and are not kept");
      log::info(log::Topic::cache, error.what());
    } catch (const std::exception&) {
    }
  }
  batch_.clear();
}

void Writer::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    take_batch();
    const std::size_t tasks = batch_.size();
    lock.unlock();
    write_batch();
    lock.lock();
    completed_ += tasks;
    done_.notify_all();
  }
}

}  // namespace saccade::cache
