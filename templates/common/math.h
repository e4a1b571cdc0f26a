// The functions that score and mask programs call: saccade::math::{floor, sqrt, exp, exp2, log, log2, tanh, truncate,
// divide, divide_by}.
// These defaults are branch-free, need no library, and vectorise; each is within 2 units in the last place of f32.
// On CUDA only the declarations stand here; templates/cuda/prims/math.h defines them.
// Polynomials: Cephes single precision (S. Moshier), expf.c, exp2f.c, logf.c, log2f.c, tanhf.c.
#pragma once

#ifndef SACCADE_FN
#define SACCADE_FN inline
#endif

namespace saccade::math {

#ifdef SACCADE_CUDA

SACCADE_FN float floor(float x);
SACCADE_FN float sqrt(float x);
SACCADE_FN float exp(float x);
SACCADE_FN float exp2(float x);
SACCADE_FN float log(float x);
SACCADE_FN float log2(float x);
SACCADE_FN float tanh(float x);
SACCADE_FN float divide(float x, float divisor);
SACCADE_FN float divide_by(float x, float divisor);

#else

SACCADE_FN float from_bits(int bits) { return __builtin_bit_cast(float, bits); }
SACCADE_FN int to_bits(float x) { return __builtin_bit_cast(int, x); }

#ifdef __clang__
SACCADE_FN float floor(float x) { return __builtin_elementwise_floor(x); }
SACCADE_FN float sqrt(float x) { return __builtin_elementwise_sqrt(x); }
#else
SACCADE_FN float floor(float x) { return __builtin_floorf(x); }
SACCADE_FN float sqrt(float x) { return __builtin_sqrtf(x); }
#endif

// Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the mantissa; it is defined for NaN too.
constexpr float kRounder = 12582912.0f;
SACCADE_FN int rounded_integer(float shifted) { return to_bits(shifted) - to_bits(kRounder); }

/// value * 2^n for n in [-252, 254]; two factors, so that results below 2^-126 and above 2^128 come out right.
SACCADE_FN float scale_by_power(float value, int n) {
  const int half = n >> 1;
  return value * from_bits((half + 127) << 23) * from_bits((n - half + 127) << 23);
}

SACCADE_FN float exp2(float x) {
  const float low = x < -151.0f ? -151.0f : x;
  const float y = low > 129.0f ? 129.0f : low;
  const float shifted = y + kRounder;
  const float r = y - (shifted - kRounder);
  float p = 1.535336188319500e-4f;
  p = p * r + 1.339887440266574e-3f;
  p = p * r + 9.618437357674640e-3f;
  p = p * r + 5.550332471162809e-2f;
  p = p * r + 2.402264791363012e-1f;
  p = p * r + 6.931472028550421e-1f;
  return scale_by_power(p * r + 1.0f, rounded_integer(shifted));
}

SACCADE_FN float exp(float x) {
  const float low = x < -105.0f ? -105.0f : x;
  const float y = low > 89.5f ? 89.5f : low;
  const float shifted = y * 1.44269504088896341f + kRounder;
  const float n = shifted - kRounder;
  // ln 2 in two parts, the first with so few bits that n times it is exact.
  const float r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return scale_by_power(p * (r * r) + r + 1.0f, rounded_integer(shifted));
}

/// x = 2^exponent * (1 + fraction) with 1 + fraction in [sqrt(1/2), sqrt(2)); `tail` is log(1 + fraction) - fraction.
struct LogarithmParts {
  float exponent, fraction, tail;
};
SACCADE_FN LogarithmParts logarithm_parts(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const auto bits = static_cast<unsigned>(to_bits(tiny ? x * 8388608.0f : x));
  // Moving the origin to sqrt(1/2) makes the exponent field round the right way.
  constexpr unsigned kSqrtHalf = 0x3f3504f3u;
  const int exponent = static_cast<int>(bits - kSqrtHalf) >> 23;
  const float m = from_bits(static_cast<int>(bits - (static_cast<unsigned>(exponent) << 23))) - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * m + -1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m + -1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m + -1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m + -2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  return {static_cast<float>(exponent - (tiny ? 23 : 0)), m, p * m * (m * m)};
}
/// The logarithm's values at 0, below, at infinity and NaN.
SACCADE_FN float logarithm_edges(float x, float value) {
  constexpr float infinity = __builtin_bit_cast(float, 0x7f800000);
  const float finite = x < infinity ? value : x;  // also NaN
  const float positive = x < 0.0f ? __builtin_nanf("") : finite;
  return x == 0.0f ? -infinity : positive;
}

SACCADE_FN float log(float x) {
  const LogarithmParts parts = logarithm_parts(x);
  const float m = parts.fraction, n = parts.exponent;
  const float small = parts.tail + n * -2.12194440e-4f - 0.5f * (m * m);
  return logarithm_edges(x, m + small + n * 0.693359375f);
}

SACCADE_FN float log2(float x) {
  const LogarithmParts parts = logarithm_parts(x);
  const float m = parts.fraction;
  const float tail = parts.tail - 0.5f * (m * m);
  constexpr float kLog2eLessOne = 0.44269504088896341f;
  return logarithm_edges(x, tail * kLog2eLessOne + m * kLog2eLessOne + tail + m + parts.exponent);
}

SACCADE_FN float tanh(float x) {
  const float size = x < 0.0f ? -x : x;
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z + -5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z + -3.33332819422e-1f;
  const float near = p * z * x + x;
  const float far = 1.0f - 2.0f / (exp(size + size) + 1.0f);
  return size < 0.625f ? near : x < 0.0f ? -far : far;
}

SACCADE_FN float divide(float x, float divisor) { return x / divisor; }
/// The same, where `divisor` is one number for many x.
SACCADE_FN float divide_by(float x, float divisor) { return x / divisor; }

#endif

// Cheaper forms for targets on which a division, or a second function of a special unit, is dear.

/// x / divisor within 2 units in the last place, as a product with the reciprocal: one multiplication where the divisor
/// is a constant, two where it is the same for many x. The scale keeps the reciprocal a normal number; where it makes x
/// overflow or vanish, so does the quotient.
SACCADE_FN float multiply_by_reciprocal(float x, float divisor) {
  const float size = divisor < 0.0f ? -divisor : divisor;
  const float scale = size > 8.507059173e37f ? 5.421010862e-20f : size < 1.175494351e-38f ? 1.844674407e19f : 1.0f;
  return x * scale * (1.0f / (divisor * scale));
}

/// tanh(x) = numerator / denominator for |x| up to kTanhEnd, beyond which tanh is 1 or -1 to this precision: with the
/// division within 2^-20 of the value (relative), for every x from the smallest. Minimax fit of x P(x^2) / Q(x^2).
struct TanhQuotient {
  float numerator, denominator;
};
constexpr float kTanhEnd = 7.9f;
SACCADE_FN TanhQuotient tanh_quotient(float x) {
  const float z = x * x;
  const float p = ((1.15318426e-5f * z + 2.96047353e-3f) * z + 0.129344180f) * z + 0.999999881f;
  const float q = (((2.49254896e-7f * z + 2.40012101e-4f) * z + 2.38540843e-2f) * z + 0.462676436f) * z + 1.0f;
  return {x * p, q};
}

/// Towards zero, within the range of int; NaN gives 0.
SACCADE_FN int truncate(float x) {
  if (x >= 2147483648.0f) return 2147483647;
  if (x <= -2147483648.0f) return -2147483647 - 1;
  return x != x ? 0 : static_cast<int>(x);
}

}  // namespace saccade::math
