// Online softmax (Milakov and Gimelshein 2018; FlashAttention-2, algorithm 1) of one panel: a lane is a row.
#pragma once

#include "saccade_templates/cpu/tile/layout.h"
#include "saccade_templates/cpu/tile/scores.h"

namespace saccade::cpu {

/// S^T becomes P^T = e^(S - m), with m the row maximum so far; row_max and row_sum advance. `correction` is what earlier sums
/// and outputs of the row must be multiplied by. A row with nothing kept so far has m = -inf and P = 0.
template <class Config>
SACCADE_INLINE void softmax_panel(typename Layout<Config>::Scratch& scratch, const Scores<Config>& scores, int panel,
                                  int count, typename Layout<Config>::Float (&correction)[Layout<Config>::kVectors]) {
  using L = Layout<Config>;
  using Float = typename L::Float;
  constexpr int kWidth = L::kWidth;
  SACCADE_UNROLL
  for (int v = 0; v < L::kVectors; ++v) {
    float* s = &scratch.s[0][v * kWidth];
    float* stored_max = &scratch.row_max[panel][v * kWidth];
    float* stored_sum = &scratch.row_sum[panel][v * kWidth];
    const Float old_max = load<Float>(stored_max);
    // Two chains hide the latency of the maximum.
    Float even = -kInfinity, odd = -kInfinity;
    for (int n = 0; n + 1 < count; n += 2) {
      even = larger<kWidth>(even, load<Float>(s + n * L::kLanes));
      odd = larger<kWidth>(odd, load<Float>(s + (n + 1) * L::kLanes));
    }
    if (count % 2 != 0) even = larger<kWidth>(even, load<Float>(s + (count - 1) * L::kLanes));
    const Float new_max = larger<kWidth>(old_max, scores.row_max_of(larger<kWidth>(even, odd)));
    const Float reference = scores.reference_of(new_max);
    correction[v] = scores.correction(old_max, reference);

    // The tile by itself first: half a million keys added one by one to their sum would lose 5 digits.
    Float sum = 0.0f;
    for (int n = 0; n < count; ++n) {
      const Float p = scores.weight(load<Float>(s + n * L::kLanes), reference);
      sum += p;
      store(s + n * L::kLanes, p);
    }
    store(stored_max, new_max);
    store(stored_sum, load<Float>(stored_sum) * correction[v] + sum);
  }
}

#if defined(__AVX512BF16__)
/// P^T in pairs of consecutive keys, rounded to bfloat16, as the second product wants it.
template <class Config>
SACCADE_INLINE void pair_probabilities(typename Layout<Config>::Scratch& scratch, int count) {
  using L = Layout<Config>;
  using Float = typename L::Float;
  using Words = UInt16Vector<32>;
  for (int n = 0; n < count; n += 2) {
    SACCADE_UNROLL
    for (int v = 0; v < L::kVectors; ++v) {
      const Float even = load<Float>(&scratch.s[n][v * 16]);
      const Float odd = n + 1 < count ? load<Float>(&scratch.s[n + 1][v * 16]) : Float(0.0f);
      const Words words = bits<Words>(__builtin_ia32_cvtne2ps2bf16_512(odd, even));  // the even ones come first
      store(&scratch.p[n / 2][v * 16],
            __builtin_shufflevector(words, words, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25,
                                    10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
    }
  }
}
#endif

}  // namespace saccade::cpu
