// mbarrier: the barriers in shared memory on which bulk copies and threads meet (PTX ISA, "Parallel Synchronization and
// Communication Instructions: mbarrier").
//
// A barrier completes its phase when its count of arrivals and all announced bytes have come. Waiting names the parity
// of the phase: a barrier that was just initialised is in phase 0, and the phase before it (parity 1) counts as
// complete.
#pragma once

#include "saccade_templates/cuda/prims/types.h"

namespace saccade::cuda {

constexpr uint32 kMbarrierBytes = 8;

SACCADE_FN void mbarrier_init(uint32 barrier, uint32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes initialised barriers visible to bulk copies; other threads see them after the block's barrier.
SACCADE_FN void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

SACCADE_FN void mbarrier_arrive(uint32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives, and announces `bytes` that bulk copies will add.
SACCADE_FN void mbarrier_arrive_expect(uint32 barrier, uint32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

SACCADE_FN bool mbarrier_try_wait(uint32 barrier, uint32 parity) {
  uint32 complete;
  asm volatile(
      "{\n.reg .pred complete;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
      "selp.u32 %0, 1, 0, complete;\n}"
      : "=r"(complete)
      : "r"(barrier), "r"(parity)
      : "memory");
  return complete != 0;
}

SACCADE_FN void mbarrier_wait(uint32 barrier, uint32 parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

/// By all lanes of a warp, one of which then does what completes the next phase: none may still be looking at this one.
SACCADE_FN void mbarrier_wait_by_warp(uint32 barrier, uint32 parity) {
  mbarrier_wait(barrier, parity);
  __syncwarp();
}

/// A place in a ring of `stages` slots, each with barriers of its own.
template <int stages>
struct RingPlace {
  uint32 slot = 0;
  uint32 parity = 0;  ///< of the phase that belongs to this turn of the ring

  /// The slot before, where there is one for each place.
  SACCADE_FN uint32 before() const { return slot == 0 ? stages - 1 : slot - 1; }
  SACCADE_FN uint32 after() const { return slot + 1 == stages ? 0 : slot + 1; }
  SACCADE_FN void advance(uint32 places = 1) {
    slot += places;
    if (slot >= stages) {
      slot -= stages;
      parity ^= 1;
    }
  }
};

}  // namespace saccade::cuda
