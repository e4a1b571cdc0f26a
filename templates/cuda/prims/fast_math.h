// Single-instruction approximations (PTX ISA: ex2.approx and lg2.approx have a maximum relative error of about 2^-22).
#pragma once

#include "saccade_templates/cuda/prims/types.h"

namespace saccade::cuda {

SACCADE_FN float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

SACCADE_FN float fast_log2(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

SACCADE_FN float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace saccade::cuda
