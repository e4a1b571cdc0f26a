// Forward attention for Hopper: TMA, wgmma and warp specialisation (FlashAttention-3, Shah et al. 2024, sections 3.1
// and 3.2), with a softmax whose reference trails the maximum.
//
// A block stays on its SM and computes row tiles of tile_m = 64 * warpgroups rows. One warp decides which tiles are
// needed, one loads Q, K and V; each consumer warpgroup owns 64 rows of S, P and O. While P V of one tile of keys runs on
// the tensor cores, the warpgroup takes the exponentials of the next tile's S.
#pragma once

#include "saccade_templates/cuda/prims/types.h"  // first: it says what SACCADE_FN is

#include "saccade_templates/common/params.h"
#include "saccade_templates/common/rules.h"
#include "saccade_templates/cuda/tile/row_tiles.h"
#include "saccade_templates/cuda/tile/warpgroup_consumer.h"
#include "saccade_templates/cuda/tile/warpgroup_producer.h"
#include "saccade_templates/cuda/tile/warpgroup_walker.h"

namespace saccade::cuda {

/// The body of an emitted kernel, with Schedule::shared_bytes of dynamic shared memory.
template <class Schedule, class Rules>
SACCADE_FN void forward_sm90(const KernelParams& params, const TensorMaps& maps) {
  using Config = WarpgroupConfig<Schedule, Rules>;
  static_assert(Config::shared_bytes == Schedule::shared_bytes,
                "the generator's model of shared memory and the kernel's layout must agree");
  constexpr int warpgroups = Schedule::warpgroups, threads = 128 * (warpgroups + 1);
  static_assert(Schedule::producer_registers + warpgroups * Schedule::consumer_registers <=
                    (warpgroups + 1) * (65536 / threads / 8 * 8),
                "warps that ask for registers which none gives up wait for ever");
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const WarpgroupShared<Config> shared{opaque(shared_address_of(shared_memory))};  // not derived again for each tile
  const int warp = __shfl_sync(kFullWarp, int(thread_index() / 32), 0);            // known to be the same in all lanes
  if (thread_index() == 0) shared.init();
  __syncthreads();
  if (warp < 4) {
    release_registers<Schedule::producer_registers>();
    if (warp == 0) {
      Loader<Config>{params, maps, shared}.run();
    } else if (warp == 1) {
      Walker<Config, Rules>{params, shared}.run();
    } else if (Config::cleans_values) {
      ValueCleaner<Config, Rules>{shared}.run();
    }
  } else {
    claim_registers<Schedule::consumer_registers>();
    Consumer<Config, Rules>(params, maps, shared, warp / 4 - 1).run();
  }
}

}  // namespace saccade::cuda
