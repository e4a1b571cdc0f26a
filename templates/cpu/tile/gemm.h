// The two products of attention as one micro-kernel. Queries lie in the lanes of vectors:
//   S^T[key][query]     += K[key][i]     * Q^T[i][query]
//   O^T[channel][query] += V^T[channel][key] * P^T[key][query]
// so that K and V enter as broadcast scalars and need no transposition, and every row of the softmax is a lane: maxima
// and sums need no shuffles. (The usual orientation transposes K and reduces across lanes for each row.)
#pragma once

#include "saccade_templates/cpu/prims/vector.h"

namespace saccade::cpu {

/// One step of a product: acc += a * b in float32.
template <int Width>
struct FloatStep {
  using Element = float;
  static constexpr int kDepth = 1;  ///< elements of the summed dimension in one step
  static SACCADE_INLINE FloatVector<Width> apply(FloatVector<Width> acc, float a, FloatVector<Width> b) {
    return acc + FloatVector<Width>(a) * b;
  }
  static SACCADE_INLINE FloatVector<Width> operand(const float* b) { return load<FloatVector<Width>>(b); }
};

#if defined(__AVX512BF16__)
/// Two steps at once on pairs of bfloat16, products exact and sums in float32 (vdpbf16ps, which flushes denormals).
template <int Width>
struct BFloat16PairStep {
  static_assert(Width == 16);
  using Element = unsigned;  ///< the even element in the low half
  using Pairs = __bf16 __attribute__((vector_size(64)));
  static constexpr int kDepth = 2;
  static SACCADE_INLINE FloatVector<16> apply(FloatVector<16> acc, unsigned a, UIntVector<16> b) {
    return __builtin_ia32_dpbf16ps_512(acc, bits<Pairs>(UIntVector<16>(a)), bits<Pairs>(b));
  }
  static SACCADE_INLINE UIntVector<16> operand(const unsigned* b) { return load<UIntVector<16>>(b); }
};
#endif

/// acc[r][v] += sum over i < steps of a[r * RowStride + i * StepStride] * b[i * Vectors * Width + v * Width ...].
/// Rows * Vectors accumulators and one step's operands must fit into the registers.
template <class Step, int Width, int Rows, int Vectors, int RowStride, int StepStride>
SACCADE_INLINE void accumulate(FloatVector<Width> (&acc)[Rows][Vectors], const typename Step::Element* a,
                               const typename Step::Element* b, int steps) {
  for (int i = 0; i < steps; ++i) {
    decltype(Step::operand(b)) operand[Vectors];
    SACCADE_UNROLL
    for (int v = 0; v < Vectors; ++v) operand[v] = Step::operand(b + (i * Vectors + v) * Width);
    SACCADE_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const typename Step::Element scalar = a[r * RowStride + i * StepStride];
      SACCADE_UNROLL
      for (int v = 0; v < Vectors; ++v) acc[r][v] = Step::apply(acc[r][v], scalar, operand[v]);
    }
  }
}

}  // namespace saccade::cpu
