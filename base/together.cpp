#include "base/together.h"

#include <system_error>
#include <thread>
#include <vector>

namespace saccade {

void work_together(std::size_t helpers, const std::function<void()>& work) {
  std::vector<std::jthread> threads;
  threads.reserve(helpers);
  try {
    while (threads.size() < helpers) threads.emplace_back([&work] { work(); });
  } catch (const std::system_error&) {  // no more threads
  }
  work();
}

}  // namespace saccade
