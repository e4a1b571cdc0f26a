// The row tiles of a block that stays on its SM.
#pragma once

#include "saccade_templates/cuda/tile/work.h"

namespace saccade::cuda {

/// Rising: tiles as they come. Folded: a head's last tile, then its first, then the last but one ..., two to a block: as
/// much work for each block when later rows have more keys (causal).
enum class RowOrder : int { rising = 0, folded = 1 };

/// The row tiles of this block: every gridDim.x-th, or every gridDim.x-th pair. Tiles of one head stay together in time,
/// so that its K and V stay in L2. `Config`: tile_m, row_order, varlen.
template <class Config>
struct RowTiles {
  static constexpr bool folded = Config::row_order == RowOrder::folded;

  const KernelParams& params;
  uint32 tiles_per_head;
  uint32 index = blockIdx.x;  ///< of the tile or pair
  bool second = false;        ///< of its pair

  SACCADE_FN explicit RowTiles(const KernelParams& kernel_params)
      : params(kernel_params), tiles_per_head(uint32(ceil_div(kernel_params.seqlen_q, Config::tile_m))) {}

  /// The next row tile that has rows; false when there is none.
  SACCADE_FN bool next(WorkItem& item, Sequence& sequence) {
    for (; exists(); advance()) {
      item = this->item();
      sequence = sequence_of<Config::varlen>(params, item.batch);
      if (Config::varlen && item.q_first >= sequence.len_q) continue;
      advance();
      return true;
    }
    return false;
  }

 private:
  SACCADE_FN bool exists() const { return index < turns_per_head() * uint32(params.heads_q) * uint32(params.batch); }

  SACCADE_FN WorkItem item() const {
    const uint32 head_index = index / turns_per_head();
    uint32 tile = index - head_index * turns_per_head();
    if (folded && !second) tile = tiles_per_head - 1 - tile;
    const uint32 batch = head_index / uint32(params.heads_q);
    return {int(batch), int(head_index - batch * uint32(params.heads_q)), int(tile) * Config::tile_m};
  }

  SACCADE_FN void advance() {
    const uint32 place = index % turns_per_head();
    second = folded && !second && tiles_per_head - 1 - place != place;
    if (!second) index += gridDim.x;
  }

  SACCADE_FN uint32 turns_per_head() const { return folded ? (tiles_per_head + 1) / 2 : tiles_per_head; }
};

}  // namespace saccade::cuda
