// Tensor maps (TMA descriptors) over the tensors of a run.
#pragma once

#include "base/status.h"
#include "generator/family.h"
#include "runtime/cuda/cuda_api.h"
#include "templates/common/params.h"

namespace saccade::cuda {

/// The maps of q, k, v and, if asked for, o at the pointers and strides of `params`, whose strides are multiples of 16 bytes. A dimension of
/// stride 0 gets one element, and one of an empty tensor reads q: kernels know both. What a thread's last few runs asked for is remembered
/// and not encoded again. `device_error` with the driver's reason.
Status encode(const Driver& driver, const TensorMapSpecs& specs, const KernelParams& params, TensorMaps& maps);

}  // namespace saccade::cuda
