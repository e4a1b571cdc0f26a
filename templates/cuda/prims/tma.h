// The tensor memory accelerator: tiles of a tensor by one instruction (PTX ISA, cp.async.bulk.tensor).
#pragma once

#include "saccade_templates/cuda/prims/types.h"

#include "saccade_templates/common/params.h"

namespace saccade::cuda {

/// Where a tile begins in a tensor map over [batch, heads, rows, columns].
struct TilePlace {
  int column, row, head, batch;
};

SACCADE_FN void tma_prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Starts the copy of the map's box at `place`; elements beyond the tensor become zeros. Its bytes arrive at `barrier`.
SACCADE_FN void tma_load(uint32 shared, const TensorMap& map, const TilePlace& place, uint32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(place.column), "r"(place.row), "r"(place.head), "r"(place.batch)
      : "memory");
}

/// Starts the copy of the map's box from shared memory to `place`; what lies beyond the tensor is not written.
SACCADE_FN void tma_store(const TensorMap& map, const TilePlace& place, uint32 shared) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
               "r"(shared), "r"(place.column), "r"(place.row), "r"(place.head), "r"(place.batch)
               : "memory");
}
SACCADE_FN void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until all but the last `pending` groups of this thread's stores have read their shared memory.
template <int pending = 0>
SACCADE_FN void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
/// Until they are in global memory.
SACCADE_FN void tma_store_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/// Orders this thread's ordinary accesses to shared memory before what bulk copies and wgmma do after the next barrier.
SACCADE_FN void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace saccade::cuda
