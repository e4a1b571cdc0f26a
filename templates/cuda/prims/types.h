// The few types that CUDA kernels need; no CUDA header is included.
#pragma once

#define SACCADE_CUDA
#define SACCADE_FN __device__ __forceinline__

namespace saccade::cuda {

using uint16 = unsigned short;
using uint32 = unsigned int;
using uint64 = unsigned long long;
using int64 = long long;

/// IEEE half precision and bfloat16 as storage: the bits, and what the PTX instructions call them.
struct f16 {
  uint16 bits;
  static constexpr uint32 exponent_mask = 0x7c00;  ///< all ones: infinity or NaN
};
struct bf16 {
  uint16 bits;
  static constexpr uint32 exponent_mask = 0x7f80;
};

template <class A, class B>
constexpr bool is_same = false;
template <class A>
constexpr bool is_same<A, A> = true;

constexpr uint32 kFullWarp = 0xffffffffu;
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

/// threadIdx.x, read anew at each call: what is computed from it stays where it is used, instead of being kept in
/// registers over the main loop.
SACCADE_FN uint32 thread_index() {
  uint32 index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

/// `value`, of an origin that the compiler cannot see: what is derived from it anew is not kept in registers meanwhile.
SACCADE_FN int64 opaque(int64 value) {
  asm volatile("" : "+l"(value));
  return value;
}
SACCADE_FN uint32 opaque(uint32 value) {
  asm volatile("" : "+r"(value));
  return value;
}
SACCADE_FN int opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

SACCADE_FN float negative_infinity() { return __int_as_float(0xff800000); }

SACCADE_FN constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
SACCADE_FN constexpr int round_up(int a, int b) { return ceil_div(a, b) * b; }
SACCADE_FN constexpr int minimum(int a, int b) { return a < b ? a : b; }
SACCADE_FN constexpr int maximum(int a, int b) { return a < b ? b : a; }

}  // namespace saccade::cuda
