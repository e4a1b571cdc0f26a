// cp.async: asynchronous copies from global to shared memory, completed in groups.
#pragma once

#include "saccade_templates/cuda/prims/types.h"

namespace saccade::cuda {

/// Copies `bytes` (4, 8 or 16; both addresses aligned to it). When not `valid`, writes zeros and reads nothing.
template <int bytes>
SACCADE_FN void cp_async(uint32 shared_address, const void* global, bool valid) {
  const int source_bytes = valid ? bytes : 0;
  if constexpr (bytes == 16) {
    // .cg: K and V are used once per SM, so they need not pass through L1.
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address), "l"(global),
                 "r"(source_bytes)
                 : "memory");
  } else {
    static_assert(bytes == 4 || bytes == 8);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address), "l"(global), "n"(bytes),
                 "r"(source_bytes)
                 : "memory");
  }
}

SACCADE_FN void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `pending` of this thread's groups are in flight. Others see the data after a barrier.
template <int pending>
SACCADE_FN void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace saccade::cuda
