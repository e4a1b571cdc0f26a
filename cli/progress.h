// Progress of long work on stderr: a line that is rewritten on a terminal, or a line now and then with --progress.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace saccade::cli {

class Progress {
 public:
  /// `forced`: also where stderr is no terminal. `total`: steps; 0 when it is not known.
  Progress(std::string title, int total, bool forced);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` steps are finished; `label` names the next.
  void step(int done, std::string label);
  /// What is going on within the step.
  void detail(std::string_view text);
  /// Removes the line, so that other output can follow.
  void clear();

 private:
  std::string line(std::string_view detail, double elapsed_s) const;

  std::string title_;
  std::string label_;
  int total_, done_ = 0;
  bool terminal_, enabled_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

/// "2:05", "0:09"
std::string clock_text(double seconds);

}  // namespace saccade::cli
