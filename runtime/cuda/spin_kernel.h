// A kernel that waits: timed work is enqueued behind it, so that the time between two events holds no host time.
#pragma once

#include "runtime/cuda/cuda_api.h"

namespace saccade::cuda {

/// Loads itself from PTX, which the driver compiles for any GPU: timing needs no NVRTC.
class SpinKernel {
 public:
  SpinKernel() = default;
  ~SpinKernel();
  SpinKernel(const SpinKernel&) = delete;
  SpinKernel& operator=(const SpinKernel&) = delete;

  /// In the current context.
  Status load(const Driver& driver);
  /// One thread that returns after `nanoseconds`, in the context it was loaded in.
  Status enqueue(const Driver& driver, unsigned long long nanoseconds, StreamHandle stream) const;

 private:
  const Driver* driver_ = nullptr;
  Context context_ = nullptr;
  Module module_ = nullptr;
  Function function_ = nullptr;
};

}  // namespace saccade::cuda
