#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/printable.h"

namespace saccade::cli {

using std::chrono::steady_clock;

Progress::Progress(std::string title, int total, bool forced)
    : title_(std::move(title)),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) == 1),
      enabled_(terminal_ || forced),
      start_(steady_clock::now()) {}

Progress::~Progress() { clear(); }

void Progress::step(int done, std::string label) {
  done_ = done;
  label_ = std::move(label);
  detail({});
}

void Progress::detail(std::string_view text) {
  if (!enabled_) return;
  const auto now = steady_clock::now();
  // Ten a second are enough for the eye; a log wants one every two seconds.
  const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(2000);
  if (shown_ && now - last_ < pause) return;
  last_ = now;
  shown_ = true;
  const std::string whole = printable(line(text, std::chrono::duration<double>(now - start_).count()));
  if (terminal_) {
    fmt::print(stderr, "\r\x1b[K{}", whole.substr(0, 118));
  } else {
    fmt::print(stderr, "{}\n", whole);
  }
  std::fflush(stderr);
}

void Progress::clear() {
  if (shown_ && terminal_) {
    fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
  }
  shown_ = false;
}

std::string Progress::line(std::string_view detail, double elapsed_s) const {
  std::string text = title_;
  if (total_ > 0) {
    text += fmt::format(" {}/{}", std::min(done_, total_), total_);
    if (done_ > 0) text += fmt::format(", {} left", clock_text(elapsed_s / done_ * std::max(0, total_ - done_)));
  } else {
    text += fmt::format(", {}", clock_text(elapsed_s));
  }
  if (!label_.empty()) text += fmt::format(": {}", label_);
  if (!detail.empty()) text += fmt::format(": {}", detail);
  return text;
}

std::string clock_text(double seconds) {
  const int whole = static_cast<int>(std::lround(std::max(0.0, seconds)));
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace saccade::cli
