// Fused attention for CPUs: for each (batch, head, query tile), walk the KV tiles that the mask keeps,
//   S = Q K^T;  S = score(S), masked = -inf;  P = exp2(S - m);  O = O * correction + P V;
// and divide by the row sums in the end. The panels of a query tile share each K and V tile, which is converted once.
#pragma once

#include "saccade_templates/cpu/rules.h"
#include "saccade_templates/cpu/tile/layout.h"
#include "saccade_templates/cpu/tile/pack.h"
#include "saccade_templates/cpu/tile/softmax.h"
#include "saccade_templates/cpu/tile/work.h"

namespace saccade::cpu {

template <class Config>
class Forward {
  using L = Layout<Config>;
  using Float = typename L::Float;
  using Scratch = typename L::Scratch;
  using Rules = typename Config::Rules;
  using Storage = typename Config::Storage;
  static constexpr int kWidth = L::kWidth;

  const KernelParams& p_;
  const Scores<Config> scores_;
  Sequence sequence_;
  int q_first_, rows_;   ///< of the query tile
  int kv_first_, keys_;  ///< of the KV tile
  Scratch scratch_;

 public:
  SACCADE_INLINE Forward(const KernelParams& p) : p_(p), scores_(p) {}

  /// Query tiles from the last to the first: under a causal mask they go from the longest to the shortest, so that
  /// threads end together.
  SACCADE_INLINE void run(Index item) {
    const Index heads = static_cast<Index>(p_.batch) * p_.heads_q;
    const int tiles = (p_.seqlen_q + L::kTileM - 1) / L::kTileM;
    const int split = static_cast<int>(item % p_.splits);
    const Index tile_and_head = item / p_.splits;
    const Index head = tile_and_head % heads;
    sequence_ =
        sequence_of<Config::varlen>(p_, static_cast<int>(head / p_.heads_q), static_cast<int>(head % p_.heads_q));
    q_first_ = (tiles - 1 - static_cast<int>(tile_and_head / heads)) * L::kTileM;
    rows_ = smaller(L::kTileM, sequence_.len_q - q_first_);
    if (rows_ <= 0) return;
    start();
    walk(split);
    finish(split);
  }

 private:
  SACCADE_INLINE int panels() const { return (rows_ + L::kLanes - 1) / L::kLanes; }
  SACCADE_INLINE int rows_of(int panel) const { return smaller(L::kLanes, rows_ - panel * L::kLanes); }

  SACCADE_INLINE Tile tile_of(int q_first, int rows) const {
    return {sequence_.b, sequence_.h,           q_first,         q_first + rows - 1,
            kv_first_,   kv_first_ + keys_ - 1, sequence_.len_q, sequence_.len_kv};
  }

  void start() {
    const Storage* q = static_cast<const Storage*>(p_.q) + sequence_.q_offset + q_first_ * p_.q_stride.row;
    for (int panel = 0; panel < panels(); ++panel) {
      load_queries<Config>(scratch_.q[panel], q + panel * L::kLanes * p_.q_stride.row, p_.q_stride.row, rows_of(panel),
                           Scores<Config>::negated(p_));
      for (int c = 0; c < L::kChannels; ++c) {
        for (int lane = 0; lane < L::kLanes; ++lane) scratch_.o[panel][c][lane] = 0.0f;
      }
      for (int lane = 0; lane < L::kLanes; ++lane) {
        scratch_.row_max[panel][lane] = -kInfinity;
        scratch_.row_sum[panel][lane] = 0.0f;
      }
    }
  }

  SACCADE_INLINE void walk(int split) {
    kv_first_ = 0;
    keys_ = sequence_.len_kv;
    KvRange range = {0, sequence_.len_kv};
    if constexpr (Rules::has_mask) range = Rules::kv_range(p_, tile_of(q_first_, rows_));
    if constexpr (Config::split) range = split_range(range, split, p_.splits, L::kTileN);
    for (kv_first_ = range.begin; kv_first_ < range.end; kv_first_ += L::kTileN) {
      keys_ = smaller(L::kTileN, range.end - kv_first_);
      TileClass tile_class = TileClass::full;
      if constexpr (Rules::has_mask) tile_class = Rules::tile_class(p_, tile_of(q_first_, rows_));
      if (tile_class != TileClass::empty) step(tile_class);
    }
  }

  /// One KV tile for all panels.
  void step(TileClass tile_class) {
    const Storage* k = static_cast<const Storage*>(p_.k) + sequence_.k_offset + kv_first_ * p_.k_stride.row;
    const Storage* v = static_cast<const Storage*>(p_.v) + sequence_.v_offset + kv_first_ * p_.v_stride.row;
    load_keys<Config>(scratch_, k, p_.k_stride.row, keys_);
    const bool finite = load_values<Config>(scratch_, v, p_.v_stride.row, keys_);
    const int share = (L::kTileN + panels() - 1) / panels();
    for (int panel = 0; panel < panels(); ++panel) {
      prefetch(kv_first_ + L::kTileN + panel * share, share);
      TileClass panel_class = tile_class;
      if constexpr (Rules::has_mask) {
        if (tile_class == TileClass::mixed) {
          panel_class = Rules::tile_class(p_, tile_of(q_first_ + panel * L::kLanes, rows_of(panel)));
        }
      }
      if (panel_class == TileClass::empty) continue;
      scores(panel);
      apply_rules(panel, panel_class == TileClass::mixed);
      Float correction[L::kVectors];
      softmax_panel<Config>(scratch_, scores_, panel, keys_, correction);
      if (panel_class == TileClass::mixed && !finite) {
        outputs_guarded(panel, v, correction);
      } else {
        outputs(panel, correction);
      }
    }
  }

  /// Asks for rows of the next KV tile while this one is computed: without it their conversion waits for memory, 7% of the
  /// whole time at head dimension 128.
  SACCADE_INLINE void prefetch(int first, int count) const {
    constexpr int kLineBytes = 64;
    const int end = smaller(first + count, sequence_.len_kv);
    for (int n = first; n < end; ++n) {
      const auto* k = static_cast<const Byte*>(p_.k) + (sequence_.k_offset + n * p_.k_stride.row) * sizeof(Storage);
      const auto* v = static_cast<const Byte*>(p_.v) + (sequence_.v_offset + n * p_.v_stride.row) * sizeof(Storage);
      for (unsigned i = 0; i < Config::head_dim_qk * sizeof(Storage); i += kLineBytes) __builtin_prefetch(k + i, 0, 2);
      for (unsigned i = 0; i < Config::head_dim_v * sizeof(Storage); i += kLineBytes) __builtin_prefetch(v + i, 0, 2);
    }
  }

  /// S^T = K Q^T of one panel.
  void scores(int panel) {
    constexpr int kRows = Config::score_rows;
    for (int n = 0; n < keys_; n += kRows) {
      Float acc[kRows][L::kVectors] = {};
      accumulate<typename L::ScoreStep, kWidth, kRows, L::kVectors, L::kKeyStride, 1>(
          acc, scratch_.k[n], scratch_.q[panel][0], L::kScoreSteps);
      SACCADE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        SACCADE_UNROLL
        for (int v = 0; v < L::kVectors; ++v) {
          store(&scratch_.s[n + r][v * kWidth], acc[r][v]);
        }
      }
    }
  }

  /// The score rule, then the mask. Lanes beyond the last query get some value that is never stored. `__restrict`: writing S
  /// changes no table, so that what a rule reads of a table for all elements alike is read once.
  SACCADE_INLINE void apply_rules(int panel, bool mixed) __restrict {
    const int q_first = q_first_ + panel * L::kLanes;
    if constexpr (Rules::has_score) {
      for (int n = 0; n < keys_; ++n) {
        for (int lane = 0; lane < L::kLanes; ++lane) {
          scratch_.s[n][lane] = Rules::score(p_, element(q_first + lane, n), scratch_.s[n][lane] * p_.scale);
        }
      }
    }
    if constexpr (Rules::has_mask) {
      if (!mixed) return;
      for (int n = 0; n < keys_; ++n) {
        for (int lane = 0; lane < L::kLanes; ++lane) {
          const float s = scratch_.s[n][lane];
          scratch_.s[n][lane] = Rules::keep(p_, element(q_first + lane, n)) ? s : -kInfinity;
        }
      }
    }
  }

  SACCADE_INLINE Element element(int q_idx, int n) const {
    return {sequence_.b, sequence_.h, q_idx, kv_first_ + n, sequence_.len_q, sequence_.len_kv};
  }

  /// O^T = O^T * correction + V^T P^T of one panel. The tile is summed by itself first, which keeps the error of long sums small.
  void outputs(int panel, Float (&correction)[L::kVectors]) {
    constexpr int kRows = Config::output_rows;
    const typename L::OutputElement* probabilities;
    if constexpr (Config::bf16_outputs) {
      pair_probabilities<Config>(scratch_, keys_);
      probabilities = scratch_.p[0];
    } else {
      probabilities = scratch_.s[0];
    }
    const int steps = (keys_ + L::OutputStep::kDepth - 1) / L::OutputStep::kDepth;
    for (int block = 0; block < L::kChannelBlocks; ++block) {
      float* o = scratch_.o[panel][block * kRows];
      Float acc[kRows][L::kVectors] = {};
      accumulate<typename L::OutputStep, kWidth, kRows, L::kVectors, 1, kRows>(acc, scratch_.v[block][0], probabilities,
                                                                               steps);
      SACCADE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        SACCADE_UNROLL
        for (int v = 0; v < L::kVectors; ++v) {
          float* sum = o + r * L::kLanes + v * kWidth;
          store(sum, load<Float>(sum) * correction[v] + acc[r][v]);
        }
      }
    }
  }

  /// The same when V holds an Inf or NaN that the mask may hide from some rows: where P is 0, V is not looked at, since
  /// 0 * Inf is NaN. Slow, and rare: padding that was never written.
  __attribute__((noinline)) void outputs_guarded(int panel, const Storage* v_source, Float (&correction)[L::kVectors]) {
    for (int c = 0; c < Config::head_dim_v; ++c) {
      for (int v = 0; v < L::kVectors; ++v) {
        float* o = &scratch_.o[panel][c][v * kWidth];
        Float acc = load<Float>(o) * correction[v];
        for (int n = 0; n < keys_; ++n) {
          const Float probability = load<Float>(&scratch_.s[n][v * kWidth]);
          const Float value = to_float(v_source + n * p_.v_stride.row + c);
          acc = select<kWidth>(probability == Float(0.0f), acc, acc + probability * value);
        }
        store(o, acc);
      }
    }
  }

  void finish(int split) {
    for (int panel = 0; panel < panels(); ++panel) {
      if constexpr (Config::split) {
        store_partials(panel, partials_of<Config::head_dim_v>(p_, split));
      } else {
        store_results(panel);
      }
    }
  }

  /// Divides by the row sums and writes O and LSE. A row that keeps nothing gives 0 and -inf.
  SACCADE_INLINE void store_results(int panel) {
    alignas(64) float inverse[L::kLanes];
    alignas(64) float lse[L::kLanes];
    for (int v = 0; v < L::kVectors; ++v) {
      const Float sum = load<Float>(&scratch_.row_sum[panel][v * kWidth]);
      const Float row_max = load<Float>(&scratch_.row_max[panel][v * kWidth]);
      store(inverse + v * kWidth, select<kWidth>(sum == Float(0.0f), Float(0.0f), 1.0f / sum));
      store(lse + v * kWidth, scores_.log_sum_exp(row_max, sum));
    }
    const int first = q_first_ + panel * L::kLanes;
    Storage* o = static_cast<Storage*>(p_.o) + sequence_.o_offset + first * p_.o_stride.row;
    store_outputs<Config>(scratch_.o[panel], inverse, o, p_.o_stride.row, rows_of(panel));
    if constexpr (Config::lse) {
      for (int lane = 0; lane < rows_of(panel); ++lane) p_.lse[sequence_.row_offset + first + lane] = lse[lane];
    }
  }

  SACCADE_INLINE void store_partials(int panel, const Partials& partials) {
    alignas(64) float one[L::kLanes];
    for (int lane = 0; lane < L::kLanes; ++lane) one[lane] = 1.0f;
    const Index row = sequence_.row_offset + q_first_ + panel * L::kLanes;
    store_outputs<Config>(scratch_.o[panel], one, partials.outputs + row * Config::head_dim_v, Config::head_dim_v,
                          rows_of(panel));
    for (int lane = 0; lane < rows_of(panel); ++lane) {
      partials.row_max[row + lane] = scratch_.row_max[panel][lane];
      partials.row_sum[row + lane] = scratch_.row_sum[panel][lane];
    }
  }
};

/// Computes the work items of [begin, end).
template <class Config>
SACCADE_INLINE void forward(const KernelParams& p, Index begin, Index end) {
  Forward<Config> work(p);
  for (Index item = begin; item < end; ++item) work.run(item);
}

}  // namespace saccade::cpu
