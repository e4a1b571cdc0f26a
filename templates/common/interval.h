// Interval arithmetic for tile classes and KV ranges. Used in kernels and by the host's cost model: one definition, one
// truth. SACCADE_FN is set by the including target (`__device__ __forceinline__`, `inline`, ...).
//
// Integer programs wrap at their type's width. An interval operation that could wrap gives the whole range of the type
// ("unknown"), so that `empty` and `full` stay proofs whatever the arguments.
#pragma once

#ifndef SACCADE_FN
#define SACCADE_FN inline
#endif

namespace saccade {

/// What a mask keeps of a tile. Doubles as a three-valued truth: never, sometimes, always.
enum class TileClass : int { empty = 0, mixed = 1, full = 2 };

SACCADE_FN TileClass certain(bool value) { return value ? TileClass::full : TileClass::empty; }
SACCADE_FN TileClass negate(TileClass a) { return static_cast<TileClass>(2 - static_cast<int>(a)); }
SACCADE_FN TileClass all_of(TileClass a) { return a; }
SACCADE_FN TileClass any_of(TileClass a) { return a; }
template <class... Rest>
SACCADE_FN TileClass all_of(TileClass a, Rest... rest) {
  const TileClass b = all_of(rest...);
  return static_cast<int>(a) < static_cast<int>(b) ? a : b;
}
template <class... Rest>
SACCADE_FN TileClass any_of(TileClass a, Rest... rest) {
  const TileClass b = any_of(rest...);
  return static_cast<int>(a) > static_cast<int>(b) ? a : b;
}
SACCADE_FN TileClass equal(TileClass a, TileClass b) {
  return a == TileClass::mixed || b == TileClass::mixed ? TileClass::mixed : certain(a == b);
}
SACCADE_FN TileClass not_equal(TileClass a, TileClass b) { return negate(equal(a, b)); }
SACCADE_FN TileClass select(TileClass c, TileClass a, TileClass b) {
  if (c == TileClass::full) return a;
  if (c == TileClass::empty) return b;
  return a == b ? a : TileClass::mixed;
}

// Integers at one element: arithmetic that wraps and is never undefined

template <class T>
struct IntegerLimits;
template <>
struct IntegerLimits<int> {
  static constexpr long long lowest = -2147483647LL - 1, highest = 2147483647LL;
};
template <>
struct IntegerLimits<long long> {
  static constexpr long long lowest = -9223372036854775807LL - 1, highest = 9223372036854775807LL;
};
constexpr long long kUnboundedBelow = IntegerLimits<long long>::lowest;
constexpr long long kUnboundedAbove = IntegerLimits<long long>::highest;

SACCADE_FN long long wide(long long a) { return a; }
/// The value modulo 2^32 or 2^64, as a signed number.
template <class T>
SACCADE_FN T wrap(long long a) {
  return static_cast<T>(a);
}
SACCADE_FN long long wrap_multiply(long long a, long long b) {
  return static_cast<long long>(static_cast<unsigned long long>(a) * static_cast<unsigned long long>(b));
}
SACCADE_FN long long wrap_sum(long long a) { return a; }
template <class... Rest>
SACCADE_FN long long wrap_sum(long long a, Rest... rest) {
  return static_cast<long long>(static_cast<unsigned long long>(a) +
                                static_cast<unsigned long long>(wrap_sum(static_cast<long long>(rest)...)));
}

/// floor(a / b); 0 when b is 0.
template <class T>
SACCADE_FN T floor_divide(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return wrap<T>(wrap_multiply(a, -1));
  const T quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
/// a - b * floor(a / b); 0 when b is 0.
template <class T>
SACCADE_FN T floor_modulo(T a, T b) {
  if (b == 0 || b == -1) return 0;
  const T remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}
template <class T>
SACCADE_FN T minimum(T a, T b) {
  return b < a ? b : a;
}
template <class T>
SACCADE_FN T maximum(T a, T b) {
  return a < b ? b : a;
}
template <class T>
SACCADE_FN T absolute(T a) {
  return a < 0 ? wrap<T>(wrap_multiply(a, -1)) : a;
}

SACCADE_FN float absolute(float a) { return a < 0 ? -a : a; }

// Integer intervals

/// All integers from lo to hi; none when lo > hi.
struct IntInterval {
  long long lo, hi;
  SACCADE_FN IntInterval(long long value) : lo(value), hi(value) {}  // NOLINT(google-explicit-constructor)
  SACCADE_FN IntInterval(long long first, long long last) : lo(first), hi(last) {}
};

/// An interval of 32-bit integers, in half the space.
struct NarrowInterval {
  int lo, hi;
  SACCADE_FN NarrowInterval(const IntInterval& a)  // NOLINT(google-explicit-constructor)
      : lo(static_cast<int>(a.lo)), hi(static_cast<int>(a.hi)) {}
  SACCADE_FN operator IntInterval() const { return {lo, hi}; }  // NOLINT(google-explicit-constructor)
};

/// Every value of a type: what is left when nothing can be proved.
template <class T>
SACCADE_FN IntInterval any_integer() {
  return {IntegerLimits<T>::lowest, IntegerLimits<T>::highest};
}

// Plain 64-bit arithmetic, for sums that the generator has proved to stay within 64 bits.
SACCADE_FN IntInterval operator+(IntInterval a, IntInterval b) { return {a.lo + b.lo, a.hi + b.hi}; }
SACCADE_FN IntInterval operator-(IntInterval a, IntInterval b) { return {a.lo - b.hi, a.hi - b.lo}; }
SACCADE_FN IntInterval operator-(IntInterval a) { return {-a.hi, -a.lo}; }
SACCADE_FN IntInterval operator*(long long c, IntInterval a) {
  return c < 0 ? IntInterval(c * a.hi, c * a.lo) : IntInterval(c * a.lo, c * a.hi);
}

/// The interval if no value of it wraps, else every value of the type.
template <class T>
SACCADE_FN IntInterval wrap(IntInterval a) {
  return a.lo < IntegerLimits<T>::lowest || a.hi > IntegerLimits<T>::highest ? any_integer<T>() : a;
}
SACCADE_FN bool is_narrow(IntInterval a) {
  return a.lo >= IntegerLimits<int>::lowest && a.hi <= IntegerLimits<int>::highest;
}
SACCADE_FN IntInterval hull_of(long long a, long long b) { return a < b ? IntInterval(a, b) : IntInterval(b, a); }
SACCADE_FN IntInterval hull(IntInterval a, IntInterval b) {
  if (a.lo > a.hi) return b;
  if (b.lo > b.hi) return a;
  return {minimum(a.lo, b.lo), maximum(a.hi, b.hi)};
}

/// Sound for any factors; factors beyond 32 bits give "unknown".
SACCADE_FN IntInterval wrap_multiply(IntInterval a, IntInterval b) {
  if (!is_narrow(a) || !is_narrow(b)) return any_integer<long long>();
  return hull(hull_of(a.lo * b.lo, a.lo * b.hi), hull_of(a.hi * b.lo, a.hi * b.hi));
}
SACCADE_FN bool sum_overflows(long long a, long long b) {
  return b > 0 ? a > kUnboundedAbove - b : a < kUnboundedBelow - b;
}
SACCADE_FN IntInterval wrap_sum(IntInterval a) { return a; }
template <class... Rest>
SACCADE_FN IntInterval wrap_sum(IntInterval a, Rest... rest) {
  const IntInterval b = wrap_sum(IntInterval(rest)...);
  if (sum_overflows(a.lo, b.lo) || sum_overflows(a.hi, b.hi)) return any_integer<long long>();
  return {a.lo + b.lo, a.hi + b.hi};
}

SACCADE_FN long long magnitude(IntInterval a) {
  const long long below = a.lo == kUnboundedBelow ? kUnboundedAbove : -a.lo;
  return maximum(maximum(below, a.hi), 0LL);
}
template <class T>
SACCADE_FN IntInterval floor_divide(IntInterval a, T b) {
  if (b < 0 && a.lo == IntegerLimits<T>::lowest) return any_integer<T>();  // lowest / -1 wraps
  return hull_of(floor_divide(static_cast<T>(a.lo), b), floor_divide(static_cast<T>(a.hi), b));
}
template <class T>
SACCADE_FN IntInterval floor_divide(IntInterval a, IntInterval b) {
  if (a.lo == IntegerLimits<T>::lowest) return any_integer<T>();
  if (b.lo >= 1 || b.hi <= -1) {
    return hull(floor_divide<T>(a, static_cast<T>(b.lo)), floor_divide<T>(a, static_cast<T>(b.hi)));
  }
  return {-magnitude(a), magnitude(a)};
}
template <class T>
SACCADE_FN IntInterval floor_modulo(IntInterval a, IntInterval b) {
  if (b.lo == b.hi && b.lo > 0) {
    const T divisor = static_cast<T>(b.lo), first = static_cast<T>(a.lo), last = static_cast<T>(a.hi);
    if (floor_divide(first, divisor) != floor_divide(last, divisor)) return {0, b.lo - 1};
    return {floor_modulo(first, divisor), floor_modulo(last, divisor)};
  }
  return {b.lo < 0 ? (b.lo == kUnboundedBelow ? b.lo : b.lo + 1) : 0, b.hi > 0 ? b.hi - 1 : 0};
}
SACCADE_FN IntInterval minimum(IntInterval a, IntInterval b) { return {minimum(a.lo, b.lo), minimum(a.hi, b.hi)}; }
SACCADE_FN IntInterval maximum(IntInterval a, IntInterval b) { return {maximum(a.lo, b.lo), maximum(a.hi, b.hi)}; }
template <class T>
SACCADE_FN IntInterval absolute(IntInterval a) {
  if (a.lo == IntegerLimits<T>::lowest) return any_integer<T>();
  if (a.lo >= 0) return a;
  if (a.hi <= 0) return {-a.hi, -a.lo};
  return {0, maximum(-a.lo, a.hi)};
}
SACCADE_FN IntInterval select(TileClass c, IntInterval a, IntInterval b) {
  return c == TileClass::full ? a : c == TileClass::empty ? b : hull(a, b);
}
SACCADE_FN IntInterval integer_of(TileClass a) { return {a == TileClass::full ? 1 : 0, a == TileClass::empty ? 0 : 1}; }

SACCADE_FN TileClass less(IntInterval a, IntInterval b) {
  return a.hi < b.lo ? TileClass::full : a.lo >= b.hi ? TileClass::empty : TileClass::mixed;
}
SACCADE_FN TileClass less_equal(IntInterval a, IntInterval b) {
  return a.hi <= b.lo ? TileClass::full : a.lo > b.hi ? TileClass::empty : TileClass::mixed;
}
SACCADE_FN TileClass greater(IntInterval a, IntInterval b) { return less(b, a); }
SACCADE_FN TileClass greater_equal(IntInterval a, IntInterval b) { return less_equal(b, a); }
SACCADE_FN TileClass equal(IntInterval a, IntInterval b) {
  if (a.hi < b.lo || b.hi < a.lo) return TileClass::empty;
  return a.lo == a.hi && b.lo == b.hi ? TileClass::full : TileClass::mixed;
}
SACCADE_FN TileClass not_equal(IntInterval a, IntInterval b) { return negate(equal(a, b)); }

// Solving for kv_idx: the values of an expression's argument for which the expression can lie in `target`

SACCADE_FN IntInterval anywhere() { return {kUnboundedBelow, kUnboundedAbove}; }
SACCADE_FN IntInterval nowhere() { return {0, -1}; }
/// Where a condition that does not depend on kv_idx lets keys through.
SACCADE_FN IntInterval where(TileClass condition) { return condition == TileClass::empty ? nowhere() : anywhere(); }
SACCADE_FN TileClass overlap(IntInterval a, IntInterval b) { return certain(a.lo <= b.hi && b.lo <= a.hi); }
SACCADE_FN IntInterval intersect(IntInterval a) { return a; }
template <class... Rest>
SACCADE_FN IntInterval intersect(IntInterval a, Rest... rest) {
  const IntInterval b = intersect(rest...);
  return {maximum(a.lo, b.lo), minimum(a.hi, b.hi)};
}
template <class... Rest>
SACCADE_FN IntInterval hull(IntInterval a, IntInterval b, Rest... rest) {
  return hull(a, hull(b, rest...));
}

SACCADE_FN long long saturating_add(long long a, long long b) {
  if (sum_overflows(a, b)) return a < 0 ? kUnboundedBelow : kUnboundedAbove;
  return a + b;
}
SACCADE_FN long long saturating_subtract(long long a, long long b) {
  if (b == kUnboundedBelow) return a < 0 ? saturating_add(a + 1, kUnboundedAbove) : kUnboundedAbove;
  return saturating_add(a, -b);
}
/// The values of x with x <= b, x < b, x >= b or x > b for some value of b.
SACCADE_FN IntInterval at_most(IntInterval b) { return {kUnboundedBelow, b.hi}; }
SACCADE_FN IntInterval below(IntInterval b) { return {kUnboundedBelow, saturating_subtract(b.hi, 1)}; }
SACCADE_FN IntInterval at_least(IntInterval b) { return {b.lo, kUnboundedAbove}; }
SACCADE_FN IntInterval above(IntInterval b) { return {saturating_add(b.lo, 1), kUnboundedAbove}; }

/// x with x + others in target.
SACCADE_FN IntInterval solve_sum(IntInterval target, IntInterval others) {
  return {target.lo == kUnboundedBelow ? target.lo : saturating_subtract(target.lo, others.hi),
          target.hi == kUnboundedAbove ? target.hi : saturating_subtract(target.hi, others.lo)};
}
/// x with factor * x in target; unbounded unless the factor is one number and not 0.
SACCADE_FN IntInterval solve_product(IntInterval target, IntInterval factor) {
  if (factor.lo != factor.hi || factor.lo == 0 || factor.lo == kUnboundedBelow) return anywhere();
  if (target.lo > target.hi) return nowhere();
  const bool flip = factor.lo < 0;
  const long long c = flip ? -factor.lo : factor.lo;
  const long long lo = flip ? saturating_subtract(0, target.hi) : target.lo;
  const long long hi = flip ? saturating_subtract(0, target.lo) : target.hi;
  return {lo == kUnboundedBelow ? lo : -floor_divide(-lo, c), hi == kUnboundedAbove ? hi : floor_divide(hi, c)};
}
/// x with floor(x / divisor) in target; unbounded unless the divisor is one positive number.
SACCADE_FN IntInterval solve_quotient(IntInterval target, IntInterval divisor) {
  const long long d = divisor.lo;
  if (d != divisor.hi || d <= 0 || !is_narrow(divisor)) return anywhere();
  if (target.lo > target.hi) return nowhere();
  // Beyond 32 bits a product could overflow; then the bound itself, or none, is still right.
  const long long lowest = IntegerLimits<int>::lowest, highest = IntegerLimits<int>::highest;
  return {target.lo < lowest    ? kUnboundedBelow
          : target.lo > highest ? target.lo
                                : target.lo * d,
          target.hi > highest  ? kUnboundedAbove
          : target.hi < lowest ? target.hi
                               : target.hi * d + (d - 1)};
}
/// x with |x| in target.
SACCADE_FN IntInterval solve_absolute(IntInterval target) {
  if (target.hi < 0) return nowhere();
  return {target.hi == kUnboundedAbove ? kUnboundedBelow : -target.hi, target.hi};
}
/// x with min(x, other) in target.
SACCADE_FN IntInterval solve_minimum(IntInterval target, IntInterval other) {
  return {target.lo, other.lo > target.hi ? target.hi : kUnboundedAbove};
}
/// x with max(x, other) in target.
SACCADE_FN IntInterval solve_maximum(IntInterval target, IntInterval other) {
  return {other.hi < target.lo ? target.lo : kUnboundedBelow, target.hi};
}
/// What was solved, if `expression` (not yet wrapped) stays within the type.
template <class T>
SACCADE_FN IntInterval unless_wrapped(IntInterval expression, IntInterval solved) {
  const bool low = expression.lo < IntegerLimits<T>::lowest || expression.lo == kUnboundedBelow;
  const bool high = expression.hi > IntegerLimits<T>::highest || expression.hi == kUnboundedAbove;
  return low || high ? anywhere() : solved;
}

}  // namespace saccade
