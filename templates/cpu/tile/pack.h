// Tiles in and out: Q, K and V from memory to the layouts of the micro-kernel, O back.
#pragma once

#include "saccade_templates/cpu/tile/layout.h"

namespace saccade::cpu {

/// Q^T of one panel. `factor` multiplies the elements (not in bfloat16 pairs, which stay as they are); lanes from
/// `rows` on are 0.
template <class Config>
SACCADE_INLINE void load_queries(typename Layout<Config>::ScoreElement (*q)[Layout<Config>::kLanes],
                                 const typename Config::Storage* source, Index row_stride, int rows, float factor) {
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
        q[i][lane] = address[2 * i].bits | high << 16;
      }
    } else {
      load_row<L::kWidth, kDim>(address, row);
      for (int i = 0; i < kDim; ++i) q[i][lane] = row[i] * factor;
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

/// Whether a float is Inf or NaN, gathered over many vectors: the largest magnitude as an integer tells.
template <int Width>
struct FiniteCheck {
  UIntVector<Width> largest = 0;
  SACCADE_INLINE void add(FloatVector<Width> value) {
    const UIntVector<Width> magnitude = bits<UIntVector<Width>>(value) & 0x7fffffffu;
    largest = largest > magnitude ? largest : magnitude;
  }
  SACCADE_INLINE bool all_finite() const { return __builtin_reduce_max(largest) < 0x7f800000u; }
};

/// `count` rows of V in blocks of the micro-kernel's channels. Gives false when one of them holds an Inf or NaN.
template <class Config>
SACCADE_INLINE bool load_values(typename Layout<Config>::Scratch& scratch, const typename Config::Storage* source,
                                Index row_stride, int count) {
  using L = Layout<Config>;
  constexpr int kRows = Config::output_rows;
  constexpr int kDepth = L::OutputStep::kDepth;
  constexpr int kPadded = round_up(round_up(Config::head_dim_v, L::kWidth), kRows);
  alignas(64) float row[kDepth][kPadded] = {};
  FiniteCheck<L::kWidth> check;
  for (int n = 0; n < count; n += kDepth) {
    SACCADE_UNROLL
    for (int i = 0; i < kDepth; ++i) {
      if (n + i < count) {
        load_row<L::kWidth, Config::head_dim_v>(source + (n + i) * row_stride, row[i]);
      } else {
        __builtin_memset(row[i], 0, sizeof(row[i]));
      }
      for (int c = 0; c < Config::head_dim_v; c += L::kWidth) check.add(load<typename L::Float>(row[i] + c));
    }
    for (int block = 0; block < L::kChannelBlocks; ++block) {
      auto* destination = scratch.v[block][n / kDepth];
      if constexpr (Config::bf16_outputs) {
        SACCADE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const unsigned low = bits<unsigned>(row[0][block * kRows + r]);
          const unsigned high = bits<unsigned>(row[1][block * kRows + r]);
          destination[r] = low >> 16 | (high & 0xffff0000u);
        }
      } else {
        __builtin_memcpy(destination, row[0] + block * kRows, kRows * sizeof(float));
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
