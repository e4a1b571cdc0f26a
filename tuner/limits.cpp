#include "tuner/limits.h"

#include <chrono>

namespace saccade::tuner {

double steady_now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

}  // namespace saccade::tuner
