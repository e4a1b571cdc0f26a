// exp2 and log2 of vectors of floats.
#pragma once

#include "saccade_templates/cpu/prims/vector.h"

namespace saccade::cpu {

constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2 = 0.69314718055994531f;

/// 2^x for x <= 0; NaN gives NaN, results below 2^-126 give 0 (so -inf gives exactly 0). Largest error 1 ulp.
/// x = n + r with n the nearest integer; 2^r by a minimax polynomial on [-1/2, 1/2] (relative error 1.6e-8), fitted
/// with the constant term fixed to 1, so that 2^0 is exact.
template <int N>
SACCADE_INLINE FloatVector<N> exp2_of_nonpositive(FloatVector<N> x) {
  using Float = FloatVector<N>;
  const Float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits of the significand
  const Float rounded = x + kRound;
  const Float r = x - (rounded - kRound);
  Float y = 0x1.41fbbcp-13f;
  y = y * r + 0x1.5f3e52p-10f;
  y = y * r + 0x1.3b2d4cp-7f;
  y = y * r + 0x1.c6aee8p-5f;
  y = y * r + 0x1.ebfbdcp-3f;
  y = y * r + 0x1.62e430p-1f;
  y = y * r + 1.0f;
  // A product rather than an addition to the exponent, so that NaN stays NaN whatever its payload.
  const Float power = bits<Float>((bits<IntVector<N>>(rounded) << 23) + 0x3f800000);
  const Float tiny = -126.0f;
  return select<N>(x < tiny, Float(0.0f), y * power);
}

/// log2 of a positive normal number or +inf, within 2 ulp; 0 gives -inf, NaN gives NaN.
/// x = 2^n * m with m in [sqrt(1/2), sqrt(2)); log2(m) = 2 / ln 2 * atanh(t), t = (m - 1) / (m + 1), |t| <= 0.1716.
template <int N>
SACCADE_INLINE FloatVector<N> log2_of_sum(FloatVector<N> x) {
  using Float = FloatVector<N>;
  using Int = IntVector<N>;
  const Int shifted = bits<Int>(x) - 0x3f3504f3;  // sqrt(1/2)
  const Int exponent = shifted >> 23;
  const Float m = bits<Float>((shifted & 0x007fffff) + 0x3f3504f3);
  const Float t = (m - 1.0f) / (m + 1.0f);
  const Float t2 = t * t;
  Float series = 1.0f / 9;
  series = series * t2 + 1.0f / 7;
  series = series * t2 + 1.0f / 5;
  series = series * t2 + 1.0f / 3;
  series = series * t2 + 1.0f;
  const Float result = __builtin_convertvector(exponent, Float) + t * series * 2.8853900817779268f;
  const Float finite = select<N>(x < Float(kInfinity), result, x);  // +inf and NaN pass
  return select<N>(x == Float(0.0f), Float(-kInfinity), finite);
}

}  // namespace saccade::cpu
