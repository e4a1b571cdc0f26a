// The functions that mask and score programs call (common/math.h declares them), by CUDA's built-in device functions:
// within 2 units in the last place of fp32. tanh is our own, since softcap calls it for every element of S.
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

/// 1 - 2 / (1 + e^2|x|) away from zero, Taylor's series near it; the relative error stays below 2^-20.
SACCADE_FN float tanh(float x) {
  const float magnitude = ::fabsf(x);
  const float far = 1.f - 2.f * cuda::fast_reciprocal(1.f + cuda::fast_exp2(2.f * cuda::kLog2E * magnitude));
  const float square = x * x;
  const float near = x + x * square * (-1.f / 3 + square * (2.f / 15 + square * (-17.f / 315)));
  return magnitude < 0.25f ? near : ::copysignf(far, x);
}

}  // namespace saccade::math
