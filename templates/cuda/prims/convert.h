// Conversions between fp32 and pairs of 16-bit floats, and the test for non-finite pairs.
#pragma once

#include "saccade_templates/cuda/prims/types.h"

namespace saccade::cuda {

/// Two floats rounded to nearest even, the first in the low half.
template <class Element>
SACCADE_FN uint32 pack(float first, float second) {
  uint32 packed;
  if constexpr (is_same<Element, bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  }
  return packed;
}

template <class Element>
SACCADE_FN float to_float(Element value) {
  if constexpr (is_same<Element, bf16>) {
    return __uint_as_float(uint32(value.bits) << 16);
  } else {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
  }
}

template <class Element>
SACCADE_FN bool is_non_finite(Element value) {
  return (value.bits & Element::exponent_mask) == Element::exponent_mask;
}

/// The sign bits of the halves of `pair` that are infinite or NaN. Adding the exponent's last bit to a full exponent
/// carries into the (cleared) sign bit and no further.
template <class Element>
SACCADE_FN uint32 non_finite_halves(uint32 pair) {
  constexpr uint32 mask = Element::exponent_mask * 0x00010001u;
  constexpr uint32 last_bit = (0x8000u - Element::exponent_mask) * 0x00010001u;
  return ((pair & mask) + last_bit) & 0x80008000u;
}

/// Adds 0 * pair to `sum` by halves: a half of the sum is NaN once an infinity or a NaN has passed.
template <class Element>
SACCADE_FN void accumulate_non_finite(uint32& sum, uint32 pair) {
  if constexpr (is_same<Element, bf16>) {
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(0u));
  } else {
    asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(0u));
  }
}

/// `pair` with its infinite and NaN halves replaced by zero.
template <class Element>
SACCADE_FN uint32 without_non_finite(uint32 pair) {
  const uint32 signs = non_finite_halves<Element>(pair);
  return pair & ~((signs >> 15) * 0xffffu);
}

}  // namespace saccade::cuda
