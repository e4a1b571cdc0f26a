#include "base/together.h"

#include <system_error>
#include <thread>
#include <vector>

namespace saccade {

void work_together(std::size_t threads, const std::function<void()>& work) {
  std::vector<std::jthread> others;
  try {
    while (others.size() + 1 < threads) others.emplace_back([&work] { work(); });
  } catch (const std::system_error&) {  // no more threads
  }
  work();
}

}  // namespace saccade
