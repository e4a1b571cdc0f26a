// Intervals of f32 values, for masks and table reads with floats. Results of inexact operations are widened by a little
// more than the kernels' math functions, fused multiply-adds and divisions may be off by.
#pragma once

#include "saccade_templates/common/interval.h"
#include "saccade_templates/common/math.h"

namespace saccade {

/// All floats from lo to hi, and NaN if `nan`.
struct FloatInterval {
  float lo, hi;
  bool nan;
  SACCADE_FN FloatInterval(float value) : lo(value), hi(value), nan(value != value) {}  // NOLINT
  SACCADE_FN FloatInterval(float first, float last, bool may_be_nan) : lo(first), hi(last), nan(may_be_nan) {}
};

constexpr float kInfinity = __builtin_bit_cast(float, 0x7f800000);

SACCADE_FN FloatInterval any_float() { return {-kInfinity, kInfinity, true}; }
/// NaN bounds prove nothing.
SACCADE_FN FloatInterval checked(float lo, float hi, bool nan) {
  return lo <= hi ? FloatInterval(lo, hi, nan) : any_float();
}
SACCADE_FN float widening(float x) {
  const float size = x < 0 ? -x : x;
  return size < kInfinity ? size * 4e-6f + 1e-37f : 0.0f;
}
SACCADE_FN FloatInterval inexact(float lo, float hi, bool nan) {
  return checked(lo - widening(lo), hi + widening(hi), nan);
}

SACCADE_FN bool is_infinite(float x) { return x == kInfinity || x == -kInfinity; }
SACCADE_FN bool has_infinity(FloatInterval a) { return is_infinite(a.lo) || is_infinite(a.hi); }
SACCADE_FN bool has_zero(FloatInterval a) { return a.lo <= 0 && a.hi >= 0; }

SACCADE_FN FloatInterval add(FloatInterval a, FloatInterval b) {
  const bool nan = a.nan || b.nan || (has_infinity(a) && has_infinity(b));
  return inexact(a.lo + b.lo, a.hi + b.hi, nan);
}
SACCADE_FN FloatInterval negative(FloatInterval a) { return {-a.hi, -a.lo, a.nan}; }
SACCADE_FN FloatInterval subtract(FloatInterval a, FloatInterval b) { return add(a, negative(b)); }
SACCADE_FN FloatInterval multiply(FloatInterval a, FloatInterval b) {
  if ((has_zero(a) && has_infinity(b)) || (has_zero(b) && has_infinity(a))) return any_float();
  const float p = a.lo * b.lo, q = a.lo * b.hi, r = a.hi * b.lo, s = a.hi * b.hi;
  return inexact(minimum(minimum(p, q), minimum(r, s)), maximum(maximum(p, q), maximum(r, s)), a.nan || b.nan);
}
SACCADE_FN FloatInterval divide(FloatInterval a, FloatInterval b) {
  if (has_zero(b) || has_infinity(b) || has_infinity(a)) return any_float();
  const float p = a.lo / b.lo, q = a.lo / b.hi, r = a.hi / b.lo, s = a.hi / b.hi;
  return inexact(minimum(minimum(p, q), minimum(r, s)), maximum(maximum(p, q), maximum(r, s)), a.nan || b.nan);
}
SACCADE_FN FloatInterval minimum(FloatInterval a, FloatInterval b) {
  if (a.nan || b.nan) return any_float();
  return {minimum(a.lo, b.lo), minimum(a.hi, b.hi), false};
}
SACCADE_FN FloatInterval maximum(FloatInterval a, FloatInterval b) {
  if (a.nan || b.nan) return any_float();
  return {maximum(a.lo, b.lo), maximum(a.hi, b.hi), false};
}
SACCADE_FN FloatInterval absolute(FloatInterval a) {
  if (a.lo >= 0) return a;
  if (a.hi <= 0) return negative(a);
  return {0.0f, maximum(-a.lo, a.hi), a.nan};
}
SACCADE_FN FloatInterval hull(FloatInterval a, FloatInterval b) {
  return {minimum(a.lo, b.lo), maximum(a.hi, b.hi), a.nan || b.nan};
}
SACCADE_FN FloatInterval select(TileClass c, FloatInterval a, FloatInterval b) {
  return c == TileClass::full ? a : c == TileClass::empty ? b : hull(a, b);
}

SACCADE_FN FloatInterval floor(FloatInterval a) { return {math::floor(a.lo), math::floor(a.hi), a.nan}; }
SACCADE_FN FloatInterval exp(FloatInterval a) { return inexact(math::exp(a.lo), math::exp(a.hi), a.nan); }
SACCADE_FN FloatInterval exp2(FloatInterval a) { return inexact(math::exp2(a.lo), math::exp2(a.hi), a.nan); }
// Hardware approximations of tanh are good to 11 bits.
SACCADE_FN FloatInterval tanh(FloatInterval a) {
  return checked(math::tanh(a.lo) - 1e-3f, math::tanh(a.hi) + 1e-3f, a.nan);
}
SACCADE_FN FloatInterval sqrt(FloatInterval a) {
  return a.lo < 0 ? any_float() : inexact(math::sqrt(a.lo), math::sqrt(a.hi), a.nan);
}
// Close to 1 a logarithm is small, and its absolute error is what counts.
SACCADE_FN FloatInterval log(FloatInterval a) {
  return a.lo <= 0 ? any_float() : inexact(math::log(a.lo) - 1e-6f, math::log(a.hi) + 1e-6f, a.nan);
}
SACCADE_FN FloatInterval log2(FloatInterval a) {
  return a.lo <= 0 ? any_float() : inexact(math::log2(a.lo) - 1e-6f, math::log2(a.hi) + 1e-6f, a.nan);
}

SACCADE_FN FloatInterval float_of(IntInterval a) { return {static_cast<float>(a.lo), static_cast<float>(a.hi), false}; }
SACCADE_FN FloatInterval float_of(TileClass a) {
  return {a == TileClass::full ? 1.0f : 0.0f, a == TileClass::empty ? 0.0f : 1.0f, false};
}
SACCADE_FN IntInterval truncate(FloatInterval a) {
  const long long lo = math::truncate(a.lo), hi = math::truncate(a.hi);
  return a.nan ? hull(IntInterval(lo, hi), IntInterval(0)) : IntInterval(lo, hi);
}

// NaN compares false, so it cannot spoil `empty`.
SACCADE_FN TileClass less(FloatInterval a, FloatInterval b) {
  if (a.lo >= b.hi) return TileClass::empty;
  return a.hi < b.lo && !a.nan && !b.nan ? TileClass::full : TileClass::mixed;
}
SACCADE_FN TileClass less_equal(FloatInterval a, FloatInterval b) {
  if (a.lo > b.hi) return TileClass::empty;
  return a.hi <= b.lo && !a.nan && !b.nan ? TileClass::full : TileClass::mixed;
}
SACCADE_FN TileClass greater(FloatInterval a, FloatInterval b) { return less(b, a); }
SACCADE_FN TileClass greater_equal(FloatInterval a, FloatInterval b) { return less_equal(b, a); }
SACCADE_FN TileClass equal(FloatInterval a, FloatInterval b) {
  if (a.hi < b.lo || b.hi < a.lo) return TileClass::empty;
  return a.lo == a.hi && b.lo == b.hi && a.lo == b.lo && !a.nan && !b.nan ? TileClass::full : TileClass::mixed;
}
SACCADE_FN TileClass not_equal(FloatInterval a, FloatInterval b) { return negate(equal(a, b)); }

}  // namespace saccade
