// What warps of one kernel that do different work need: their share of registers, and barriers of some of the threads.
#pragma once

#include "saccade_templates/cuda/prims/types.h"

namespace saccade::cuda {

/// Gives registers back, or takes them: every warp of the warpgroup executes it (PTX ISA, setmaxnreg).
template <int registers>
SACCADE_FN void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
SACCADE_FN void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/// Named barrier `id` (1 to 15) of `threads` threads: those that arrive and those that wait.
SACCADE_FN void named_barrier_wait(uint32 id, uint32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
SACCADE_FN void named_barrier_arrive(uint32 id, uint32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace saccade::cuda
