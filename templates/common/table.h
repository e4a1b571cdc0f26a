// Reads of named tables: one element (guarded), or the range of a run of elements (for tile classes).
// The including target defines SACCADE_FN, and SACCADE_CUDA on CUDA.
#pragma once

#include "saccade_templates/common/float_interval.h"
#include "saccade_templates/common/interval.h"
#include "saccade_templates/common/params.h"

#ifdef SACCADE_CUDA
#define SACCADE_ROLLED _Pragma("unroll 1")
#define SACCADE_UNROLLED _Pragma("unroll")
#else
#define SACCADE_ROLLED
#define SACCADE_UNROLLED
#endif

namespace saccade {

// Storage of element types that the language has no name for.
namespace element {
struct f16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};
struct e4m3 {
  unsigned char bits;
};
struct e5m2 {
  unsigned char bits;
};
struct boolean {
  unsigned char bits;
};
}  // namespace element

SACCADE_FN float float_from_bits(unsigned bits) {
#ifdef SACCADE_CUDA
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

/// The value of an IEEE-like number of `exponent_bits` and `mantissa_bits`, sign in the top bit. Infinities and NaN of
/// a format that has them keep their meaning.
template <int exponent_bits, int mantissa_bits>
SACCADE_FN float float_from_small(unsigned bits) {
  constexpr unsigned width = 1 + exponent_bits + mantissa_bits;
  constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  const unsigned sign = (bits >> (width - 1)) << 31;
  const unsigned magnitude = bits & ((1u << (width - 1)) - 1);
  const unsigned exponent = magnitude >> mantissa_bits;
  if (exponent == (1u << exponent_bits) - 1) {
    return float_from_bits(sign | 0x7f800000u | (magnitude & ((1u << mantissa_bits) - 1)) << (23 - mantissa_bits));
  }
  if (exponent == 0) {  // subnormal: the mantissa counts in units of 2^(1 - bias - mantissa_bits)
    const float unit = float_from_bits(static_cast<unsigned>(127 + 1 - bias - mantissa_bits) << 23);
    const float value = static_cast<float>(magnitude) * unit;
    return sign ? -value : value;
  }
  return float_from_bits(sign | ((magnitude << (23 - mantissa_bits)) + (static_cast<unsigned>(127 - bias) << 23)));
}

/// How the elements of a table become values of a program.
template <class T>
struct TableElement {
  using Value = int;
  SACCADE_FN static int value(T x) { return x; }
};
template <>
struct TableElement<long long> {
  using Value = long long;
  SACCADE_FN static long long value(long long x) { return x; }
};
template <>
struct TableElement<unsigned> {
  using Value = long long;
  SACCADE_FN static long long value(unsigned x) { return x; }
};
template <>
struct TableElement<element::boolean> {
  using Value = bool;
  SACCADE_FN static bool value(element::boolean x) { return x.bits != 0; }
};
template <>
struct TableElement<float> {
  using Value = float;
  SACCADE_FN static float value(float x) { return x; }
};
template <>
struct TableElement<double> {
  using Value = float;
  SACCADE_FN static float value(double x) { return static_cast<float>(x); }
};
template <>
struct TableElement<element::f16> {
  using Value = float;
  SACCADE_FN static float value(element::f16 x) { return float_from_small<5, 10>(x.bits); }
};
template <>
struct TableElement<element::bf16> {
  using Value = float;
  SACCADE_FN static float value(element::bf16 x) { return float_from_bits(static_cast<unsigned>(x.bits) << 16); }
};
template <>
struct TableElement<element::e5m2> {
  using Value = float;
  SACCADE_FN static float value(element::e5m2 x) { return float_from_small<5, 2>(x.bits); }
};
template <>
struct TableElement<element::e4m3> {
  using Value = float;
  SACCADE_FN static float value(element::e4m3 x) {
    // Its top exponent holds ordinary numbers; only a mantissa of all ones is NaN.
    const unsigned magnitude = x.bits & 0x7fu;
    if (magnitude == 0x7fu) return float_from_bits(0x7fc00000u);
    const float value =
        magnitude >= 0x78u ? static_cast<float>(8 + (magnitude & 7u)) * 32.0f : float_from_small<4, 3>(magnitude);
    return x.bits & 0x80u ? -value : value;
  }
};

struct alignas(16) SixteenBytes {
  unsigned words[4];
};

/// A read of memory that nothing writes while the kernel runs. On CUDA the compiler may then keep or hoist the value
/// across the barriers and asynchronous copies of the main loop.
#ifdef SACCADE_CUDA
template <class T>
SACCADE_FN T read_only(const T* x) {
  return __ldg(x);
}
SACCADE_FN element::f16 read_only(const element::f16* x) { return {__ldg(&x->bits)}; }
SACCADE_FN element::bf16 read_only(const element::bf16* x) { return {__ldg(&x->bits)}; }
SACCADE_FN element::e4m3 read_only(const element::e4m3* x) { return {__ldg(&x->bits)}; }
SACCADE_FN element::e5m2 read_only(const element::e5m2* x) { return {__ldg(&x->bits)}; }
SACCADE_FN element::boolean read_only(const element::boolean* x) { return {__ldg(&x->bits)}; }

SACCADE_FN SixteenBytes read_only(const SixteenBytes* x) {
  const uint4 chunk = __ldg(reinterpret_cast<const uint4*>(x));
  return {{chunk.x, chunk.y, chunk.z, chunk.w}};
}

/// What is read in place of elements that do not exist: then no read is behind a branch, so that reads overlap, and one
/// that many elements have in common is done once.
__device__ const long long kZero = 0;
template <class T>
SACCADE_FN T read_only_if(bool exists, const T* x) {
  return read_only(exists ? x : reinterpret_cast<const T*>(&kZero));
}
#else
template <class T>
SACCADE_FN T read_only(const T* x) {
  return *x;
}
template <class T>
SACCADE_FN T read_only_if(bool exists, const T* x) {
  return exists ? *x : T{};
}
#endif

SACCADE_FN bool inside(long long index, long long extent) {
  return static_cast<unsigned long long>(index) < static_cast<unsigned long long>(extent);
}
SACCADE_FN bool inside(int index, long long extent) {
  constexpr long long kBeyondInt = 1LL << 31;
  return static_cast<unsigned>(index) < static_cast<unsigned>(extent < kBeyondInt ? extent : kBeyondInt);
}

/// Where an element is, in bytes from the table's start: where only one index varies, an address is one multiplication away.
struct TablePlace {
  unsigned long long bytes = 0;  ///< whatever it is when an index is outside
  bool within = true;

  SACCADE_FN void add(long long index, long long extent, unsigned long long stride) {
    within &= inside(index, extent);
    bytes += static_cast<unsigned long long>(index) * stride;
  }
  SACCADE_FN void add(int index, long long extent, unsigned long long stride) {
    within &= inside(index, extent);
    bytes += static_cast<unsigned>(index) * stride;
  }
};

/// The element at the indices, int or long long; 0, without touching memory, if one is outside.
template <class T, int rank, class... Indices>
SACCADE_FN typename TableElement<T>::Value table_load(const KernelParams& p, int slot, Indices... indices) {
  static_assert(sizeof...(indices) == rank, "one index a dimension");
  const TableArgument& table = p.tables[slot];
  TablePlace place;
  int i = 0;
  ((place.add(indices, table.extent[i], static_cast<unsigned long long>(table.stride[i]) * sizeof(T)), ++i), ...);
  const char* address = static_cast<const char*>(table.data) + static_cast<long long>(place.bytes);
  return TableElement<T>::value(read_only_if(place.within, reinterpret_cast<const T*>(address)));
}

template <class A, class B>
constexpr bool is_same_type = false;
template <class A>
constexpr bool is_same_type<A, A> = true;

/// Every value an element can have.
template <class T>
SACCADE_FN auto any_element() {
  if constexpr (is_same_type<typename TableElement<T>::Value, bool>) {
    return TileClass::mixed;
  } else if constexpr (is_same_type<typename TableElement<T>::Value, float>) {
    return any_float();
  } else if constexpr (is_same_type<T, long long>) {
    return any_integer<long long>();
  } else if constexpr (T(0) > T(~T(0))) {
    return IntInterval(-(1LL << (8 * sizeof(T) - 1)), (1LL << (8 * sizeof(T) - 1)) - 1);
  } else {
    return IntInterval(0, (1LL << (8 * sizeof(T))) - 1);
  }
}

SACCADE_FN TileClass interval_of(bool lo, bool hi, bool) { return lo == hi ? certain(lo) : TileClass::mixed; }
SACCADE_FN FloatInterval interval_of(float lo, float hi, bool nan) { return checked(lo, hi, nan); }
SACCADE_FN IntInterval interval_of(int lo, int hi, bool) { return {lo, hi}; }
SACCADE_FN IntInterval interval_of(long long lo, long long hi, bool) { return {lo, hi}; }

// Shuffles carry no bool.
template <class V>
struct Carrier {
  using Type = V;
};
template <>
struct Carrier<bool> {
  using Type = int;
};
template <class V>
using Carried = typename Carrier<V>::Type;

/// What every value is below, and above.
template <class V>
struct Bounds {
  static constexpr V above = IntegerLimits<V>::highest, below = IntegerLimits<V>::lowest;
};
template <>
struct Bounds<float> {
  static constexpr float above = kInfinity, below = -kInfinity;
};
template <>
struct Bounds<bool> {
  static constexpr bool above = true, below = false;
};

/// Smallest and largest value seen, the other way round as long as there is none, and whether a NaN was.
template <class V>
struct Extremes {
  V lo = Bounds<V>::above, hi = Bounds<V>::below;
  bool nan = false;
  SACCADE_FN void add(V value) { merge({value, value, value != value}); }
  SACCADE_FN void merge(const Extremes& other) {
    lo = other.lo < lo ? other.lo : lo;
    hi = hi < other.hi ? other.hi : hi;
    nan = nan || other.nan;
  }
#ifdef SACCADE_CUDA
  /// Of each `lanes` lanes of a warp together.
  template <int lanes>
  SACCADE_FN void reduce_over_lanes() {
    const unsigned mask = 0xffffffffu >> (32 - lanes) << threadIdx.x % 32 / lanes * lanes;
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      const auto other_lo = static_cast<V>(__shfl_xor_sync(mask, Carried<V>(lo), distance));
      const auto other_hi = static_cast<V>(__shfl_xor_sync(mask, Carried<V>(hi), distance));
      merge({other_lo, other_hi, is_same_type<V, float> && __shfl_xor_sync(mask, int(nan), distance) != 0});
    }
  }
#endif
};

/// Longer runs are not read: their tile is cheaper to mask than to classify.
constexpr long long kMaxTableRange = 512;

/// The extremes of the elements of a run of `count` that this lane, one of `lanes` that read it together, looks at. Rolled up,
/// since the producer of tiles has few registers; several loads are in flight, of 16 bytes where elements are behind one
/// another.
template <class T, int lanes>
SACCADE_FN void add_run(Extremes<typename TableElement<T>::Value>& seen, const T* data, int count, long long stride,
                        int lane) {
  constexpr int in_chunk = 16 / static_cast<int>(sizeof(T)), chunks_together = in_chunk <= 4 ? 4 : 16 / in_chunk;
  constexpr int elements_together = 4;
  union Chunk {
    SixteenBytes bytes;
    T elements[in_chunk];
    SACCADE_FN Chunk() {}
  };
  SACCADE_ROLLED
  while (count > 0) {
    const int past_boundary = static_cast<int>(reinterpret_cast<unsigned long long>(data) % 16);
    int step = count;
    if (stride == 1 && past_boundary == 0 && count >= in_chunk) {
      const auto* chunks = reinterpret_cast<const SixteenBytes*>(data);
      const int last = count / in_chunk - 1;
      step = (last + 1) * in_chunk;
      SACCADE_ROLLED
      for (int first = lane; first <= last; first += chunks_together * lanes) {
        Chunk read[chunks_together];
        SACCADE_UNROLLED
        for (int i = 0; i < chunks_together; ++i) {  // the last one again where there are fewer
          read[i].bytes = read_only(chunks + minimum(first + i * lanes, last));
        }
        SACCADE_UNROLLED
        for (int i = 0; i < chunks_together; ++i) {
          SACCADE_UNROLLED
          for (int j = 0; j < in_chunk; ++j) seen.add(TableElement<T>::value(read[i].elements[j]));
        }
      }
    } else {
      if (stride == 1 && past_boundary != 0)
        step = minimum(step, in_chunk - past_boundary / static_cast<int>(sizeof(T)));
      SACCADE_ROLLED
      for (int first = lane; first < step; first += elements_together * lanes) {
        SACCADE_UNROLLED
        for (int i = 0; i < elements_together; ++i) {
          seen.add(TableElement<T>::value(read_only(data + minimum(first + i * lanes, step - 1) * stride)));
        }
      }
    }
    count -= step;
    data += step * stride;
  }
}

/// Every value of the elements whose index in `dimension` lies in its interval; the other indices are single numbers
/// (their `lo`). Elements outside the table count as 0. On CUDA, each `lanes` lanes of a warp ask for the same range and read
/// it together.
template <class T, int lanes>
SACCADE_FN auto table_range_of(const TableArgument& table, const IntInterval* index, int rank, int dimension) {
  using V = typename TableElement<T>::Value;
  long long offset = 0;
  bool within = true;
  for (int i = 0; i < rank; ++i) {
    if (i == dimension) continue;
    within = within && inside(index[i].lo, table.extent[i]);
    offset += within ? index[i].lo * table.stride[i] : 0;
  }
  const long long extent = table.extent[dimension], stride = table.stride[dimension];
  const long long first = maximum(index[dimension].lo, 0LL), last = minimum(index[dimension].hi, extent - 1);
  if (!within || last < first) return interval_of(V(0), V(0), false);
  if (last - first >= kMaxTableRange) return any_element<T>();
  const T* data = static_cast<const T*>(table.data) + offset + first * stride;
  const int count = static_cast<int>(last - first) + 1;
  Extremes<V> seen;
#ifdef SACCADE_CUDA
  add_run<T, lanes>(seen, data, count, stride, static_cast<int>(threadIdx.x % lanes));
  seen.template reduce_over_lanes<lanes>();
#else
  for (int i = 0; i < count; ++i) seen.add(TableElement<T>::value(read_only(data + i * stride)));
#endif
  if (index[dimension].lo < 0 || index[dimension].hi >= extent) seen.add(V(0));
  return interval_of(seen.lo, seen.hi, seen.nan);
}

/// table_range_of with one index a dimension.
template <class T, int rank, int dimension, int lanes = 32, class... Indices>
SACCADE_FN auto table_range(const KernelParams& p, int slot, Indices... indices) {
  static_assert(sizeof...(indices) == rank, "one index a dimension");
  const IntInterval index[rank] = {IntInterval(indices)...};
  return table_range_of<T, lanes>(p.tables[slot], index, rank, dimension);
}

}  // namespace saccade

#undef SACCADE_ROLLED
#undef SACCADE_UNROLLED
