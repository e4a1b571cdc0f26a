// Captures: the problems and shapes that a program asks for, as a file that `saccade sweep` takes.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "generator/problem.h"
#include "generator/shape.h"

namespace saccade {

/// Appends one line {"problem": {...}, "shape": {...}, "scalars": {...}} for each problem and shape that are new to it; scalars are
/// those of the first call, where they are known. Thread safe, and several processes may append to
/// one file: each line is one write. What cannot be written, or is no regular file, is left alone after one warning.
/// Appends a line, which ends in a newline, to a regular file in one write, on a line of its own. 0, or the error.
int append_line(const std::string& path, const std::string& line);

class Capture {
 public:
  /// No path: the one in $SACCADE_CAPTURE, which is ignored in secure-execution mode; without either nothing is captured.
  explicit Capture(std::string path);

  void record(const Problem& problem, const Shape& shape, const std::vector<double>& scalars);

 private:
  std::mutex mutex_;
  std::string path_;                         ///< empty: captures nothing (any more)
  std::unordered_set<std::size_t> written_;  ///< hashes of problems and shapes
};

}  // namespace saccade
