// The families that exist. generator/family.cpp orders them; each is defined in the file of its name.
#pragma once

#include "generator/family.h"

namespace saccade {

extern const Family kCudaForwardSm90;  ///< cuda.fwd.sm90: TMA and wgmma, sm_90a
extern const Family kCudaForwardSm80;  ///< cuda.fwd.sm80: mma.sync and cp.async, every NVIDIA GPU from sm_80 on
extern const Family kCpuForward;       ///< cpu.fwd: vector extensions, AVX2 and AVX-512

}  // namespace saccade
