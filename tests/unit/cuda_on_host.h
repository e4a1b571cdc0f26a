// What CUDA has for every thread, for tests that run templates/cuda on the host: included before them. A test adds what its
// warp does together.
#pragma once

namespace {

struct Index {
  unsigned x;
};
[[maybe_unused]] Index blockIdx, gridDim, threadIdx;

inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __clz(int value) { return __builtin_clz(static_cast<unsigned>(value)); }

}  // namespace

#define __device__
#define __forceinline__ inline
#define __int_as_float(bits) __builtin_bit_cast(float, bits)
