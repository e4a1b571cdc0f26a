// The working set of one work item: sizes and layouts, all known at compile time. It lives on the stack of the thread.
#pragma once

#include "saccade_templates/cpu/prims/storage.h"
#include "saccade_templates/cpu/tile/gemm.h"

namespace saccade::cpu {

template <bool BFloat16Dot, int Width>
struct StepOf {
  using Type = FloatStep<Width>;
};
#if defined(__AVX512BF16__)
template <int Width>
struct StepOf<true, Width> {
  using Type = BFloat16PairStep<Width>;
};
#endif

template <class Config>
struct Layout {
  using Storage = typename Config::Storage;
  static constexpr int kWidth = Config::vector_bits / 32;
  using Float = FloatVector<kWidth>;
  using ScoreStep = typename StepOf<Config::bf16_scores, kWidth>::Type;    ///< S = Q K^T
  using OutputStep = typename StepOf<Config::bf16_outputs, kWidth>::Type;  ///< O = P V

  static constexpr int kVectors = Config::vectors;
  static constexpr int kLanes = kVectors * kWidth;  ///< queries of a panel
  static constexpr int kTileM = Config::tile_m;
  static constexpr int kPanels = kTileM / kLanes;
  static constexpr int kTileN = Config::tile_n;
  static_assert(kTileM % kLanes == 0 && kTileN % Config::score_rows == 0 && kTileN % OutputStep::kDepth == 0);

  static constexpr int kScoreSteps = (Config::head_dim_qk + ScoreStep::kDepth - 1) / ScoreStep::kDepth;
  /// Rows of K lie one cache line further apart than they must, so that they do not all fall into the same sets of the
  /// L1.
  static constexpr int kKeyStride = round_up(kScoreSteps, kWidth) + 16;
  static constexpr int kOutputSteps = kTileN / OutputStep::kDepth;
  static constexpr int kChannels = round_up(Config::head_dim_v, Config::output_rows);
  static constexpr int kChannelBlocks = kChannels / Config::output_rows;

  using ScoreElement = typename ScoreStep::Element;
  using OutputElement = typename OutputStep::Element;

  struct Scratch {
    alignas(64) ScoreElement q[kPanels][kScoreSteps][kLanes];  ///< Q^T, its sign changed when the scale is negative
    alignas(64) float o[kPanels][kChannels][kLanes];           ///< O^T, not yet divided by the row sum
    alignas(64) ScoreElement k[kTileN][kKeyStride];
    alignas(64) OutputElement v[kChannelBlocks][kOutputSteps][Config::output_rows];
    alignas(64) float s[kTileN][kLanes];                                           ///< S^T of one panel, then P^T
    alignas(64) OutputElement p[Config::bf16_outputs ? kOutputSteps : 1][kLanes];  ///< P^T in pairs of bfloat16
    alignas(64) float row_max[kPanels][kLanes];                                    ///< see Scores::row_max_of
    alignas(64) float row_sum[kPanels][kLanes];
  };
};

}  // namespace saccade::cpu
