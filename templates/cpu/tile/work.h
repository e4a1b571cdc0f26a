// What one work item is about: which batch, head and rows, and where their data lie. Dense and varlen differ only here.
#pragma once

#include "saccade_templates/cpu/prims/vector.h"
#include "saccade_templates/cpu/rules.h"

namespace saccade::cpu {

struct Sequence {
  int b, h, h_kv;
  int len_q, len_kv;
  Index q_offset, k_offset, v_offset, o_offset;  ///< elements from the base pointers to the first row of the head
  Index row_offset;  ///< index of the first row in lse, and in the partial results of a split
};

template <bool Varlen>
SACCADE_INLINE Sequence sequence_of(const KernelParams& p, int b, int h) {
  Sequence s{};
  s.b = b;
  s.h = h;
  s.h_kv = h / p.group;
  Index first_q = 0, first_kv = 0;
  if constexpr (Varlen) {
    first_q = p.cu_seqlens_q[b];
    first_kv = p.cu_seqlens_kv[b];
    s.len_q = static_cast<int>(p.cu_seqlens_q[b + 1] - first_q);
    s.len_kv = static_cast<int>(p.cu_seqlens_kv[b + 1] - first_kv);
    s.row_offset = h * p.total_q + first_q;
  } else {
    s.len_q = p.seqlen_q;
    s.len_kv = p.seqlen_kv;
    s.row_offset = (static_cast<Index>(b) * p.heads_q + h) * p.seqlen_q;
  }
  const Index batch = Varlen ? 0 : b;
  s.q_offset = batch * p.q_stride.batch + h * p.q_stride.head + first_q * p.q_stride.row;
  s.k_offset = batch * p.k_stride.batch + s.h_kv * p.k_stride.head + first_kv * p.k_stride.row;
  s.v_offset = batch * p.v_stride.batch + s.h_kv * p.v_stride.head + first_kv * p.v_stride.row;
  s.o_offset = batch * p.o_stride.batch + h * p.o_stride.head + first_q * p.o_stride.row;
  return s;
}

/// The part of a KV range that split `split` of `splits` walks, in whole tiles: the same whatever runs it.
SACCADE_INLINE KvRange split_range(KvRange range, int split, int splits, int tile_n) {
  const Index length = range.end > range.begin ? range.end - range.begin : 0;
  const Index tiles = (length + tile_n - 1) / tile_n;
  const Index begin = range.begin + tiles * split / splits * tile_n;
  const Index end = range.begin + tiles * (split + 1) / splits * tile_n;
  return {static_cast<int>(begin < range.end ? begin : range.end), static_cast<int>(end < range.end ? end : range.end)};
}

/// Partial results of split-KV: [splits][rows][head_dim_v] sums of weighted values, then [splits][rows] row maxima, then
/// [splits][rows] sums of weights. The maximum and the sum stay apart: as one log-sum the sum would lose the bits that a large
/// maximum takes.
struct Partials {
  float* outputs;
  float* row_max;
  float* row_sum;
};

template <int HeadDimV>
SACCADE_INLINE Partials partials_of(const KernelParams& p, int split) {
  const Index rows = static_cast<Index>(p.heads_q) * p.total_q;
  float* outputs = static_cast<float*>(p.workspace);
  float* row_max = outputs + p.splits * rows * HeadDimV;
  float* row_sum = row_max + p.splits * rows;
  return {outputs + split * rows * HeadDimV, row_max + split * rows, row_sum + split * rows};
}

}  // namespace saccade::cpu
