// The functions that mask and score programs call (common/math.h declares them), by CUDA's built-in device functions:
// within 2 units in the last place of fp32. tanh is our own, since softcap calls it for every element of S: within 2^-20.
#pragma once

#include "saccade_templates/cuda/prims/types.h"

#include "saccade_templates/common/math.h"
#include "saccade_templates/cuda/prims/fast_math.h"

namespace saccade::math {

SACCADE_FN float floor(float x) { return ::floorf(x); }
SACCADE_FN float sqrt(float x) { return ::sqrtf(x); }
SACCADE_FN float exp(float x) { return ::expf(x); }
SACCADE_FN float exp2(float x) { return ::exp2f(x); }
SACCADE_FN float log(float x) { return ::logf(x); }
SACCADE_FN float log2(float x) { return ::log2f(x); }

/// One use of the special function unit instead of two (an exponential and a reciprocal): the softmax's exponentials wait
/// for the same unit. min and max that keep NaN.
SACCADE_FN float tanh(float x) {
  float clamped;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(clamped) : "f"(x), "f"(kTanhEnd));
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(clamped) : "f"(clamped), "f"(-kTanhEnd));
  const TanhQuotient quotient = tanh_quotient(clamped);
  return quotient.numerator * cuda::fast_reciprocal(quotient.denominator);
}

/// PTX ISA, div.full: within 2 units in the last place over the full range, without the branch of an IEEE division.
SACCADE_FN float divide(float x, float divisor) {
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(x), "f"(divisor));
  return quotient;
}
SACCADE_FN float divide_by(float x, float divisor) { return multiply_by_reciprocal(x, divisor); }

}  // namespace saccade::math
