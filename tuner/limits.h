// When to stop: a deadline on an injectable clock and the caller's cancel flag.
#pragma once

#include <atomic>
#include <functional>
#include <limits>

namespace saccade::tuner {

/// Milliseconds of a monotonic clock.
double steady_now_ms();

struct Limits {
  std::function<double()> now_ms = steady_now_ms;
  double deadline_ms = std::numeric_limits<double>::infinity();
  const std::atomic<bool>* cancel = nullptr;

  bool cancelled() const { return cancel != nullptr && cancel->load(std::memory_order_relaxed); }
  bool expired() const { return now_ms() >= deadline_ms; }
  bool stop() const { return cancelled() || expired(); }
  Limits with_deadline(double at_ms) const {
    Limits copy = *this;
    copy.deadline_ms = at_ms;
    return copy;
  }
};

}  // namespace saccade::tuner
