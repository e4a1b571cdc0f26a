// Work that several threads share.
#pragma once

#include <cstddef>
#include <functional>

namespace saccade {

/// Calls `work` on up to `threads` threads at once, of which this one is one in any case, and returns when all have returned.
/// When the process may have no more threads, those that there are do it. `work` takes one item after another until none is left;
/// it throws nothing.
void work_together(std::size_t threads, const std::function<void()>& work);

}  // namespace saccade
