// Work that several threads share.
#pragma once

#include <cstddef>
#include <functional>

namespace saccade {

/// Calls `work` on this thread and on up to `helpers` others at once, and returns when all have returned. When the process
/// may have no more threads, those that there are do it. `work` takes one item after another until none is left; it throws nothing.
void work_together(std::size_t helpers, const std::function<void()>& work);

}  // namespace saccade
