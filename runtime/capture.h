// Captures: the problems and shapes that a program asks for, as a file that `saccade sweep` takes.
#pragma once

#include <mutex>
#include <string>

#include "generator/problem.h"
#include "generator/shape.h"

namespace saccade {

/// Appends one line {"problem": {...}, "shape": {...}} for each call of record(). Thread safe, and several processes may append to
/// one file: each line is one write. A file that cannot be written is left alone after one warning.
class Capture {
 public:
  /// No path: the one in $SACCADE_CAPTURE, which is ignored in secure-execution mode; without either nothing is captured.
  explicit Capture(std::string path);

  void record(const Problem& problem, const Shape& shape);

 private:
  std::mutex mutex_;
  std::string path_;  ///< empty: captures nothing (any more)
};

}  // namespace saccade
