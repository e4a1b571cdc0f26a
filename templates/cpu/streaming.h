// Attention of a few queries, such as one decoded token: K and V are read once, at memory speed, by all query heads
// that share them. Head dimensions lie in the vector lanes, as they do in memory, and nothing is converted ahead of its
// use. The rows of a work item are (query head of the group, query position) pairs.
#pragma once

#include "saccade_templates/cpu/prims/storage.h"
#include "saccade_templates/cpu/tile/scores.h"
#include "saccade_templates/cpu/tile/work.h"

namespace saccade::cpu {

/// Sums of neighbouring groups of `Distance` lanes of a and b, interleaved group by group: one level of a transposing
/// sum.
template <int Distance, int N>
SACCADE_INLINE FloatVector<N> add_groups(FloatVector<N> a, FloatVector<N> b) {
  if constexpr (N == 16 && Distance == 1) {
    return __builtin_shufflevector(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
           __builtin_shufflevector(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  } else if constexpr (N == 16 && Distance == 2) {
    return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
           __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  } else if constexpr (N == 16 && Distance == 4) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +
           __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  } else if constexpr (N == 16) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  } else if constexpr (Distance == 1) {
    return __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) +
           __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
  } else if constexpr (Distance == 2) {
    return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +
           __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
  } else {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

/// Lane i of the result is the sum of the lanes of v[i]. Each level halves the number of vectors.
template <int N, int Distance = 1>
SACCADE_INLINE FloatVector<N> sums_of_lanes(FloatVector<N>* v) {
  if constexpr (Distance == N) {
    return v[0];
  } else {
    SACCADE_UNROLL
    for (int i = 0; i < N; i += 2 * Distance) v[i] = add_groups<Distance, N>(v[i], v[i + Distance]);
    return sums_of_lanes<N, 2 * Distance>(v);
  }
}

template <class Config>
class Streaming {
  using Rules = typename Config::Rules;
  using Storage = typename Config::Storage;
  static constexpr int kWidth = Config::vector_bits / 32;
  using Float = FloatVector<kWidth>;
  using Convert = cpu::Convert<Storage, kWidth>;
  static constexpr int kRows = Config::tile_m;
  static constexpr int kTileN = Config::tile_n;
  static constexpr int kDimQk = round_up(Config::head_dim_qk, kWidth);
  static constexpr int kDimV = round_up(Config::head_dim_v, kWidth);
  static_assert(kTileN % kWidth == 0);

  /// One row of S: a query of one head.
  struct Row {
    Sequence sequence;
    int q_idx;
  };

  const KernelParams& p_;
  const Scores<Config> scores_;
  Row row_[kRows];
  int rows_;
  int kv_first_, keys_;  ///< of the KV tile
  alignas(64) float q_[kRows][kDimQk];
  alignas(64) float o_[kRows][kDimV];
  alignas(64) float s_[kRows][kTileN];
  float row_max_[kRows], row_sum_[kRows];
  float correction_[kRows];  ///< of o_, by the tile at hand

 public:
  SACCADE_INLINE Streaming(const KernelParams& p) : p_(p), scores_(p) {}

  SACCADE_INLINE void run(Index item) {
    const Index blocks = (static_cast<Index>(p_.group) * p_.seqlen_q + kRows - 1) / kRows;
    const int split = static_cast<int>(item % p_.splits);
    const Index block = item / p_.splits % blocks;
    const Index head = item / p_.splits / blocks;
    start(static_cast<int>(head / p_.heads_kv), static_cast<int>(head % p_.heads_kv), block);
    if (rows_ == 0) return;
    const KvRange range = split_range(range_of_rows(), split, p_.splits, kTileN);
    for (kv_first_ = range.begin; kv_first_ < range.end; kv_first_ += kTileN) {
      keys_ = smaller(kTileN, range.end - kv_first_);
      step();
    }
    finish(split);
  }

 private:
  void start(int b, int h_kv, Index block) {
    const int len_q = sequence_of<Config::varlen>(p_, b, h_kv * p_.group).len_q;
    const Index left = static_cast<Index>(p_.group) * len_q - block * kRows;
    rows_ = left < 0 ? 0 : left < kRows ? static_cast<int>(left) : kRows;
    for (int r = 0; r < rows_; ++r) {
      const Index index = block * kRows + r;
      Row& row = row_[r];
      row.sequence = sequence_of<Config::varlen>(p_, b, h_kv * p_.group + static_cast<int>(index / len_q));
      row.q_idx = static_cast<int>(index % len_q);
      const Storage* q = static_cast<const Storage*>(p_.q) + row.sequence.q_offset + row.q_idx * p_.q_stride.row;
      load_row<kWidth, Config::head_dim_qk>(q, q_[r]);
      if (Scores<Config>::negated(p_)) {
        for (int i = 0; i < kDimQk; ++i) q_[r][i] = -q_[r][i];
      }
      for (int c = 0; c < kDimV; ++c) o_[r][c] = 0.0f;
      row_max_[r] = -kInfinity;
      row_sum_[r] = 0.0f;
    }
  }

  SACCADE_INLINE Tile tile_of(int r) const {
    const Sequence& s = row_[r].sequence;
    return {s.b, s.h, row_[r].q_idx, row_[r].q_idx, kv_first_, kv_first_ + keys_ - 1, s.len_q, s.len_kv};
  }

  /// The keys that any of the rows keeps.
  SACCADE_INLINE KvRange range_of_rows() {
    kv_first_ = 0;
    keys_ = row_[0].sequence.len_kv;
    if constexpr (!Rules::has_mask) {
      return {0, keys_};
    } else {
      KvRange range = {keys_, 0};
      for (int r = 0; r < rows_; ++r) {
        const KvRange own = Rules::kv_range(p_, tile_of(r));
        if (own.begin >= own.end) continue;
        range.begin = smaller(own.begin, range.begin);
        range.end = own.end > range.end ? own.end : range.end;
      }
      return range;
    }
  }

  void step() {
    scores();
    for (int r = 0; r < rows_; ++r) {
      const bool kept = apply_rules(r);
      softmax(r, kept);
    }
    outputs();
  }

  /// S = Q K^T, two rows at a time, so that K is loaded and converted half as often.
  SACCADE_INLINE void scores() {
    const Sequence& sequence = row_[0].sequence;
    const Storage* k = static_cast<const Storage*>(p_.k) + sequence.k_offset + kv_first_ * p_.k_stride.row;
    for (int n = 0; n < keys_; n += kWidth) {
      int r = 0;
      for (; r + 1 < rows_; r += 2) scores_of<2>(r, k, n);
      if (r < rows_) scores_of<1>(r, k, n);
    }
  }

  /// S of `Rows` rows and one vector of keys.
  template <int Rows>
  SACCADE_INLINE void scores_of(int r, const Storage* k, int n) {
    Float sums[Rows][kWidth];
    SACCADE_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      // Beyond the last key, the last one again: its scores are not looked at.
      const Storage* key = k + smaller(n + i, keys_ - 1) * p_.k_stride.row;
      Float sum[Rows] = {};
      for (int j = 0; j < kDimQk; j += kWidth) {
        const Float elements = key_elements(key, j);
        SACCADE_UNROLL
        for (int row = 0; row < Rows; ++row) sum[row] += elements * load<Float>(&q_[r + row][j]);
      }
      SACCADE_UNROLL
      for (int row = 0; row < Rows; ++row) sums[row][i] = sum[row];
    }
    SACCADE_UNROLL
    for (int row = 0; row < Rows; ++row) store(&s_[r + row][n], sums_of_lanes<kWidth>(sums[row]));
  }

  static SACCADE_INLINE Float key_elements(const Storage* key, int first) {
    constexpr int kTail = Config::head_dim_qk % kWidth;
    if constexpr (kTail != 0) {
      if (first == kDimQk - kWidth) {
        alignas(64) float tail[kWidth];
        load_row<kWidth, kTail>(key + first, tail);
        return load<Float>(tail);
      }
    }
    return Convert::load(key + first);
  }

  /// The score rule, then the mask. Gives false when the row keeps nothing of the tile.
  SACCADE_INLINE bool apply_rules(int r) __restrict {
    const Row& row = row_[r];
    const auto element = [&](int n) {
      return Element{row.sequence.b, row.sequence.h, row.q_idx, kv_first_ + n, row.sequence.len_q, row.sequence.len_kv};
    };
    TileClass tile_class = TileClass::full;
    if constexpr (Rules::has_mask) tile_class = Rules::tile_class(p_, tile_of(r));
    if (tile_class == TileClass::empty) return false;
    if constexpr (Rules::has_score) {
      for (int n = 0; n < keys_; ++n) s_[r][n] = Rules::score(p_, element(n), s_[r][n] * p_.scale);
    }
    if constexpr (Rules::has_mask) {
      if (tile_class == TileClass::mixed) {
        for (int n = 0; n < keys_; ++n) {
          const float s = s_[r][n];
          s_[r][n] = Rules::keep(p_, element(n)) ? s : -kInfinity;
        }
      }
    }
    for (int n = keys_; n < round_up(keys_, kWidth); ++n) s_[r][n] = -kInfinity;
    return true;
  }

  /// Online softmax of one row; P replaces S.
  SACCADE_INLINE void softmax(int r, bool kept) {
    const int padded = round_up(keys_, kWidth);
    if (!kept) {
      for (int n = 0; n < padded; n += kWidth) store(&s_[r][n], Float(0.0f));
      correction_[r] = 1.0f;
      return;
    }
    Float largest = -kInfinity;
    for (int n = 0; n < padded; n += kWidth) largest = larger<kWidth>(largest, load<Float>(&s_[r][n]));
    const Float new_max = larger<kWidth>(Float(row_max_[r]), scores_.row_max_of(Float(__builtin_reduce_max(largest))));
    const Float reference = scores_.reference_of(new_max);
    correction_[r] = scores_.correction(Float(row_max_[r]), reference)[0];
    Float sum = 0.0f;
    for (int n = 0; n < padded; n += kWidth) {
      const Float p = scores_.weight(load<Float>(&s_[r][n]), reference);
      sum += p;
      store(&s_[r][n], p);
    }
    row_max_[r] = new_max[0];
    row_sum_[r] = row_sum_[r] * correction_[r] + sum_of(sum);
  }

  static SACCADE_INLINE float sum_of(Float v) {
    float sum = 0.0f;
    SACCADE_UNROLL
    for (int i = 0; i < kWidth; ++i) sum += v[i];
    return sum;
  }

  /// O = O * correction + P V, a few vectors of channels at a time in registers. The tile is summed by itself first, which keeps
  /// the error of long sums small. A key of weight 0 is not read: 0 * Inf would be NaN.
  SACCADE_INLINE void outputs() {
    constexpr int kVectors = 8;
    constexpr int kWhole = Config::head_dim_v / kWidth;  ///< vectors
    const Sequence& sequence = row_[0].sequence;
    const Storage* v = static_cast<const Storage*>(p_.v) + sequence.v_offset + kv_first_ * p_.v_stride.row;
    for (int r = 0; r < rows_; ++r) {
      for (int first = 0; first + kVectors <= kWhole; first += kVectors) outputs_of<kVectors>(r, v, first);
      outputs_of<kWhole % kVectors>(r, v, kWhole / kVectors * kVectors);
      if constexpr (Config::head_dim_v % kWidth != 0) output_tail(r, v + kWhole * kWidth);
    }
  }

  template <int Vectors>
  SACCADE_INLINE void outputs_of(int r, const Storage* v, int first) {
    if constexpr (Vectors > 0) {
      Float acc[Vectors] = {};
      for (int n = 0; n < keys_; ++n) {
        const float p = s_[r][n];
        if (Rules::has_mask && p == 0.0f) continue;
        const Storage* row = v + n * p_.v_stride.row + first * kWidth;
        SACCADE_UNROLL
        for (int j = 0; j < Vectors; ++j) acc[j] += Convert::load(row + j * kWidth) * p;
      }
      SACCADE_UNROLL
      for (int j = 0; j < Vectors; ++j) add_to_output(r, (first + j) * kWidth, acc[j]);
    }
  }

  SACCADE_INLINE void output_tail(int r, const Storage* v) {
    constexpr int kTail = Config::head_dim_v % kWidth;
    alignas(64) float tail[kWidth];
    Float acc = 0.0f;
    for (int n = 0; n < keys_; ++n) {
      const float p = s_[r][n];
      if (Rules::has_mask && p == 0.0f) continue;
      load_row<kWidth, kTail>(v + n * p_.v_stride.row, tail);
      acc += load<Float>(tail) * p;
    }
    add_to_output(r, Config::head_dim_v - kTail, acc);
  }

  SACCADE_INLINE void add_to_output(int r, int channel, Float sum) {
    float* o = &o_[r][channel];
    store(o, load<Float>(o) * correction_[r] + sum);
  }

  /// Divides by the row sums and writes O and LSE, or writes the partial results of a split. A row that keeps nothing gives 0
  /// and -inf.
  SACCADE_INLINE void finish(int split) {
    for (int r = 0; r < rows_; ++r) {
      const Sequence& sequence = row_[r].sequence;
      const Index row = sequence.row_offset + row_[r].q_idx;
      const float sum = row_sum_[r];
      if constexpr (Config::split) {
        const Partials partials = partials_of<Config::head_dim_v>(p_, split);
        store_row<kWidth, Config::head_dim_v>(partials.outputs + row * Config::head_dim_v, o_[r]);
        partials.row_max[row] = row_max_[r];
        partials.row_sum[row] = sum;
      } else {
        const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
        for (int c = 0; c < kDimV; c += kWidth) store(&o_[r][c], load<Float>(&o_[r][c]) * inverse);
        Storage* o = static_cast<Storage*>(p_.o) + sequence.o_offset + row_[r].q_idx * p_.o_stride.row;
        store_row<kWidth, Config::head_dim_v>(o, o_[r]);
        if constexpr (Config::lse) {
          p_.lse[row] = scores_.log_sum_exp(Float(row_max_[r]), Float(sum))[0];
        }
      }
    }
  }
};

/// Computes the work items of [begin, end).
template <class Config>
SACCADE_INLINE void streaming_forward(const KernelParams& p, Index begin, Index end) {
  Streaming<Config> work(p);
  for (Index item = begin; item < end; ++item) work.run(item);
}

}  // namespace saccade::cpu
