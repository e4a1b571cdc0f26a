// Storage types of q, k, v and o, and their conversion to and from floats, a vector at a time.
#pragma once

#include "saccade_templates/cpu/prims/vector.h"

namespace saccade::cpu {

/// bfloat16 in memory: the upper half of a float.
struct BFloat16 {
  UInt16 bits;
};
using Half = _Float16;

template <class Storage, int N>
struct Convert;

template <int N>
struct Convert<float, N> {
  static SACCADE_INLINE FloatVector<N> load(const float* source) { return cpu::load<FloatVector<N>>(source); }
  static SACCADE_INLINE void store(float* destination, FloatVector<N> value) { cpu::store(destination, value); }
};

template <int N>
struct Convert<Half, N> {
  static SACCADE_INLINE FloatVector<N> load(const Half* source) {
    return __builtin_convertvector(cpu::load<HalfVector<N>>(source), FloatVector<N>);
  }
  static SACCADE_INLINE void store(Half* destination, FloatVector<N> value) {
    cpu::store(destination, __builtin_convertvector(value, HalfVector<N>));
  }
};

template <int N>
struct Convert<BFloat16, N> {
  static SACCADE_INLINE FloatVector<N> load(const BFloat16* source) {
    const UIntVector<N> wide = __builtin_convertvector(cpu::load<UInt16Vector<N>>(source), UIntVector<N>);
    return bits<FloatVector<N>>(wide << 16);
  }
  /// To nearest even; a NaN keeps its upper payload and is made quiet, so that it cannot round to infinity.
  static SACCADE_INLINE UIntVector<N> round(FloatVector<N> value) {
    const UIntVector<N> x = bits<UIntVector<N>>(value);
    const UIntVector<N> nearest = (x + (((x >> 16) & 1u) + 0x7fffu)) >> 16;
    return value == value ? nearest : ((x >> 16) | 0x40u);
  }
  static SACCADE_INLINE void store(BFloat16* destination, FloatVector<N> value) {
    cpu::store(destination, __builtin_convertvector(round(value), UInt16Vector<N>));
  }
};

/// One element.
template <class Storage>
SACCADE_INLINE float to_float(const Storage* source) {
  if constexpr (__is_same(Storage, BFloat16)) {
    return bits<float>(static_cast<unsigned>(source->bits) << 16);
  } else {
    return static_cast<float>(*source);
  }
}

/// Reads `Count` elements as floats into `destination`, which has room for whole vectors; the rest is filled with
/// zeros. Nothing behind the last element is read.
template <int Width, int Count, class Storage>
SACCADE_INLINE void load_row(const Storage* source, float* destination) {
  constexpr int kWhole = Count / Width * Width;
  for (int i = 0; i < kWhole; i += Width) store(destination + i, Convert<Storage, Width>::load(source + i));
  if constexpr (kWhole < Count) {
    Storage tail[Width] = {};
    __builtin_memcpy(tail, source + kWhole, (Count - kWhole) * sizeof(Storage));
    store(destination + kWhole, Convert<Storage, Width>::load(tail));
  }
}

/// Writes the first `Count` of `source` (whole vectors may be read) and nothing behind them.
template <int Width, int Count, class Storage>
SACCADE_INLINE void store_row(Storage* destination, const float* source) {
  constexpr int kWhole = Count / Width * Width;
  for (int i = 0; i < kWhole; i += Width) {
    Convert<Storage, Width>::store(destination + i, load<FloatVector<Width>>(source + i));
  }
  if constexpr (kWhole < Count) {
    Storage tail[Width];
    Convert<Storage, Width>::store(tail, load<FloatVector<Width>>(source + kWhole));
    __builtin_memcpy(destination + kWhole, tail, (Count - kWhole) * sizeof(Storage));
  }
}

}  // namespace saccade::cpu
