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
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
      ::"r"(shared), "l"(&map), "r"(barrier), "r"(place.column), "r"(place.row), "r"(place.head), "r"(place.batch)
      : "memory");
}

/// Orders this thread's ordinary accesses to shared memory before what bulk copies and wgmma do after the next barrier.
SACCADE_FN void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace saccade::cuda
