// Which rows of which sequence and head a block computes.
#pragma once

#include "saccade_templates/cuda/prims/types.h"

#include "saccade_templates/common/params.h"

namespace saccade::cuda {

/// The order in which blocks take the row tiles of a head. Blocks start in the order of their index, and tiles of one
/// head stay together, so that its K and V stay in L2. Where later rows have more keys (causal), starting with the last
/// leaves short work for the end.
enum class BlockOrder : int { first_rows_first = 0, last_rows_first = 1 };

/// The positions of one sequence of the batch in q and k/v.
struct Sequence {
  int64 q_row;  ///< varlen: row of q where it starts
  int64 kv_row;
  int len_q, len_kv;
};

template <bool varlen>
SACCADE_FN Sequence sequence_of(const KernelParams& params, int batch) {
  if constexpr (varlen) {
    const int q_begin = params.cu_seqlens_q[batch];
    const int kv_begin = params.cu_seqlens_kv[batch];
    return {q_begin, kv_begin, params.cu_seqlens_q[batch + 1] - q_begin, params.cu_seqlens_kv[batch + 1] - kv_begin};
  } else {
    return {0, 0, params.seqlen_q, params.seqlen_kv};
  }
}

/// One tile of rows of one query head.
struct WorkItem {
  int batch, head, q_first;
};

/// Blocks are numbered with the row tile fastest, then the head, then the batch, so that heads that share K and V are
/// neighbours.
template <int tile_m, BlockOrder order>
SACCADE_FN WorkItem first_work_item(const KernelParams& params) {
  const uint32 row_tiles = uint32(ceil_div(params.seqlen_q, tile_m));
  const uint32 block = opaque(blockIdx.x);  // computed again at the end rather than kept in registers
  const uint32 head_index = block / row_tiles;
  uint32 row_tile = block - head_index * row_tiles;
  if (order == BlockOrder::last_rows_first) row_tile = row_tiles - 1 - row_tile;
  const uint32 batch = head_index / uint32(params.heads_q);
  return {int(batch), int(head_index - batch * uint32(params.heads_q)), int(row_tile) * tile_m};
}

/// How far apart the batches of a block are: a grid holds as many whole batches as its limit of 2^31 - 1 blocks allows.
template <int tile_m>
SACCADE_FN int batches_in_grid(const KernelParams& params) {
  return int(gridDim.x / (uint32(ceil_div(params.seqlen_q, tile_m)) * uint32(params.heads_q)));
}

/// The first element of a head of a sequence: q, k, v or o.
template <bool varlen, class Element>
SACCADE_FN Element* head_pointer(Element* tensor, const TensorStrides& stride, int batch, int head, int64 first_row) {
  return tensor + (varlen ? first_row * stride.row : batch * stride.batch) + head * stride.head;
}

/// The LSE of row 0 of a head of a sequence.
template <bool varlen>
SACCADE_FN float* lse_pointer(const KernelParams& params, int batch, int head, int64 q_row) {
  const int64 head_row =
      varlen ? head * params.total_q + q_row : (int64(batch) * params.heads_q + head) * params.seqlen_q;
  return params.lse + head_row;
}

}  // namespace saccade::cuda
