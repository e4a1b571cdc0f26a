// Vectors of one register's width. Everything is written with Clang's ext_vector_type, so that one text serves AVX2 and
// AVX-512 and no compiler header is needed.
#pragma once

#define SACCADE_INLINE inline __attribute__((always_inline))
#define SACCADE_UNROLL _Pragma("clang loop unroll(full)")

namespace saccade::cpu {

using Index = long long;
using Byte = unsigned char;
using UInt16 = unsigned short;

template <int N>
using FloatVector = float __attribute__((ext_vector_type(N)));
template <int N>
using IntVector = int __attribute__((ext_vector_type(N)));
template <int N>
using UIntVector = unsigned __attribute__((ext_vector_type(N)));
template <int N>
using UInt16Vector = UInt16 __attribute__((ext_vector_type(N)));
template <int N>
using HalfVector = _Float16 __attribute__((ext_vector_type(N)));

constexpr float kInfinity = __builtin_inff();

/// An unaligned load or store of any vector type.
template <class Vector>
SACCADE_INLINE Vector load(const void* address) {
  Vector value;
  __builtin_memcpy(&value, address, sizeof(Vector));
  return value;
}
template <class Vector>
SACCADE_INLINE void store(void* address, Vector value) {
  __builtin_memcpy(address, &value, sizeof(Vector));
}

template <class To, class From>
SACCADE_INLINE To bits(From value) {
  return __builtin_bit_cast(To, value);
}

/// a where the comparison holds (all ones), else b.
template <int N>
SACCADE_INLINE FloatVector<N> select(IntVector<N> condition, FloatVector<N> a, FloatVector<N> b) {
  return condition ? a : b;
}

/// The larger one; b when either is NaN (the rule of vmaxps).
template <int N>
SACCADE_INLINE FloatVector<N> larger(FloatVector<N> a, FloatVector<N> b) {
  return select<N>(a > b, a, b);
}

SACCADE_INLINE constexpr int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }
SACCADE_INLINE constexpr int smaller(int a, int b) { return a < b ? a : b; }

}  // namespace saccade::cpu
