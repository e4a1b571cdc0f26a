// wgmma: products of a warpgroup (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"). The instruction lists all
// of its registers, so the few shapes that a kernel uses are emitted with it, as specialisations of the two structs.
//
// Each warp holds 16 rows of the accumulator, laid out like that of mma.sync (prims/mma.h).
#pragma once

#include "saccade_templates/cuda/prims/mma.h"

namespace saccade::cuda {

/// S (64 x n) = Q K^T by steps of 16 columns: Q from shared memory or registers, K from shared memory, columns innermost.
template <class Element, int n>
struct ScoreProduct;
/// O (64 x n) += P V by steps of 16 keys: P from registers, V from shared memory, columns innermost.
template <class Element, int n>
struct ValueProduct;

/// Before the first wgmma, and whenever other instructions have touched its registers.
SACCADE_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
SACCADE_FN void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Keeps the compiler from moving accesses to an accumulator over this point.
template <int n>
SACCADE_FN void pin(Accumulator<1, n>& accumulator) {
#pragma unroll
  for (int i = 0; i < n / 8; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+f"(accumulator[0][i][j])::"memory");
  }
}

/// Zeroes an accumulator, by a branch of its own where the call is conditional: selects would cost every element.
template <int n>
SACCADE_FN void clear(Accumulator<1, n>& accumulator) {
#pragma unroll
  for (int i = 0; i < n / 8; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) accumulator[0][i][j] = 0.f;
  }
  pin<n>(accumulator);
}

/// Waits until at most `pending` committed groups are in flight; `accumulator` belongs to those that are done.
template <int pending, int n>
SACCADE_FN void wgmma_wait(Accumulator<1, n>& accumulator) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
  pin<n>(accumulator);
}

}  // namespace saccade::cuda
