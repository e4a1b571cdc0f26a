// Tiles in and out: Q, K and V from memory to the layouts of the micro-kernel, O back.
#pragma once

#include "saccade_templates/cpu/tile/layout.h"

namespace saccade::cpu {

/// Q^T of one panel, with its sign changed if `negated`; lanes from `rows` on are 0.
template <class Config>
SACCADE_INLINE void load_queries(typename Layout<Config>::ScoreElement (*q)[Layout<Config>::kLanes],
                                 const typename Config::Storage* source, Index row_stride, int rows, bool negated) {
  using L = Layout<Config>;
  constexpr int kDim = Config::head_dim_qk;
  alignas(64) float row[round_up(kDim, L::kWidth) + 1];
  for (int lane = 0; lane < L::kLanes; ++lane) {
    if (lane >= rows) {
      for (int i = 0; i < L::kScoreSteps; ++i) q[i][lane] = 0;
      continue;
    }
    const auto* address = source + lane * row_stride;
    if constexpr (Config::bf16_scores) {
      for (int i = 0; i < L::kScoreSteps; ++i) {
        const unsigned high = 2 * i + 1 < kDim ? address[2 * i + 1].bits : 0;
        q[i][lane] = (address[2 * i].bits | high << 16) ^ (negated ? 0x80008000 : 0);
      }
    } else {
      load_row<L::kWidth, kDim>(address, row);
      for (int i = 0; i < kDim; ++i) q[i][lane] = negated ? -row[i] : row[i];
    }
  }
}

/// `count` rows of K, then zero rows up to a whole block of the micro-kernel.
template <class Config>
SACCADE_INLINE void load_keys(typename Layout<Config>::Scratch& scratch, const typename Config::Storage* source,
                              Index row_stride, int count) {
  using L = Layout<Config>;
  for (int n = 0; n < count; ++n) {
    const auto* address = source + n * row_stride;
    if constexpr (Config::bf16_scores) {
      constexpr int kDim = Config::head_dim_qk;
      if constexpr (kDim % 2 != 0) scratch.k[n][L::kScoreSteps - 1] = 0;
      __builtin_memcpy(scratch.k[n], address, kDim * sizeof(BFloat16));
    } else {
      load_row<L::kWidth, Config::head_dim_qk>(address, scratch.k[n]);
    }
  }
  for (int n = count; n < round_up(count, Config::score_rows); ++n) {
    __builtin_memset(scratch.k[n], 0, sizeof(scratch.k[n]));
  }
}

/// Whether any float among many is Inf or NaN: the largest magnitude, as an integer, tells.
template <int Width>
struct FiniteCheck {
  UIntVector<Width> largest = 0;
  SACCADE_INLINE void add(UIntVector<Width> float_bits) {
    const UIntVector<Width> magnitude = float_bits & 0x7fffffffu;
    largest = largest > magnitude ? largest : magnitude;
  }
  SACCADE_INLINE bool all_finite() const { return __builtin_reduce_max(largest) < 0x7f800000u; }
};

/// Channels [first, first + Width) of a row of V, as bits of floats; zeros behind the last channel.
template <class Config, int Width>
SACCADE_INLINE UIntVector<Width> value_bits(const typename Config::Storage* row, int first) {
  using Storage = typename Config::Storage;
  if constexpr (Config::head_dim_v % Width != 0) {
    if (first + Width > Config::head_dim_v) {
      Storage tail[Width] = {};
      __builtin_memcpy(tail, row + first, (Config::head_dim_v % Width) * sizeof(Storage));
      return bits<UIntVector<Width>>(Convert<Storage, Width>::load(tail));
    }
  }
  return bits<UIntVector<Width>>(Convert<Storage, Width>::load(row + first));
}

/// `count` rows of V in blocks of the micro-kernel's channels. Gives false when one of them holds an Inf or NaN.
template <class Config>
SACCADE_INLINE bool load_values(typename Layout<Config>::Scratch& scratch, const typename Config::Storage* source,
                                Index row_stride, int count) {
  using L = Layout<Config>;
  constexpr int kRows = Config::output_rows;
  constexpr int kDepth = L::OutputStep::kDepth;
  constexpr bool kDirect = kRows == 8 || kRows == 16;  ///< a vector of V is a block
  constexpr int kPiece = kDirect ? kRows : 8;
  constexpr int kPieces = (Config::head_dim_v + kPiece - 1) / kPiece;
  alignas(64) unsigned row[kDirect ? 1 : kPieces * kPiece + kRows] = {};
  FiniteCheck<kPiece> check;
  for (int n = 0; n < count; n += kDepth) {
    const auto* first = source + n * row_stride;
    SACCADE_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      UIntVector<kPiece> piece = value_bits<Config, kPiece>(first, i * kPiece);
      check.add(piece);
      if constexpr (kDepth == 2) {
        // Two keys side by side; behind the last key, a zero.
        UIntVector<kPiece> next = 0;
        if (n + 1 < count) next = value_bits<Config, kPiece>(first + row_stride, i * kPiece);
        check.add(next);
        piece = piece >> 16 | next;
      }
      if constexpr (kDirect) {
        store(scratch.v[i][n / kDepth], piece);
      } else {
        store(row + i * kPiece, piece);
      }
    }
    if constexpr (!kDirect) {
      for (int block = 0; block < L::kChannelBlocks; ++block) {
        __builtin_memcpy(scratch.v[block][n / kDepth], row + block * kRows, sizeof(scratch.v[block][0]));
      }
    }
  }
  return check.all_finite();
}

/// Writes `rows` rows of O, from O^T of one panel; each lane is multiplied by its `factor` first.
template <class Config, class Destination>
SACCADE_INLINE void store_outputs(const float (*o)[Layout<Config>::kLanes], const float* factor,
                                  Destination* destination, Index row_stride, int rows) {
  using L = Layout<Config>;
  alignas(64) float row[round_up(Config::head_dim_v, L::kWidth)] = {};
  for (int lane = 0; lane < rows; ++lane) {
    for (int c = 0; c < Config::head_dim_v; ++c) row[c] = o[c][lane] * factor[lane];
    store_row<L::kWidth, Config::head_dim_v>(destination + lane * row_stride, row);
  }
}

}  // namespace saccade::cpu
