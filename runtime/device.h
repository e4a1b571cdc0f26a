// Devices: load a binary, look at it, launch it. The only code that talks to the CUDA driver or runs CPU kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "generator/family.h"
#include "generator/target.h"
#include "templates/common/params.h"

namespace saccade {

/// CUDA: a CUstream (null: the legacy default stream). CPU: ignored, launches are synchronous.
using Stream = void*;

/// A loaded binary with the entry points of one LaunchGeometry. Immutable; any thread may launch it.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// Enqueues `launch`. Never allocates, syncs or locks; safe while the stream is being captured. KernelParams are
  /// copied before the call returns. A launch with no grid or work items does nothing.
  virtual Status launch(const Launch& launch, const KernelParams& params, Stream stream) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  const Target& target() const { return target_; }
  int ordinal() const { return ordinal_; }
  /// Loads from memory and resolves the symbols; sets the dynamic shared memory limits of the launches.
  virtual Expected<std::shared_ptr<const Kernel>> load(const std::string& code,
                                                       const std::vector<Launch>& launches) const = 0;
  /// Device memory, for the tuner, tests and the CLI; never used by `run`. CPU: 64-byte aligned host memory.
  virtual Expected<void*> allocate(std::size_t bytes) const = 0;
  virtual void release(void* memory) const = 0;
  virtual Status copy_to_device(void* destination, const void* source, std::size_t bytes) const = 0;
  virtual Status copy_to_host(void* destination, const void* source, std::size_t bytes) const = 0;
  virtual Status fill(void* destination, unsigned char value, std::size_t bytes) const = 0;
  virtual Status synchronize() const = 0;
  /// True when the stream is being captured into a graph: then nothing may be measured.
  virtual Expected<bool> is_capturing(Stream stream) const = 0;
  /// Times one enqueue of work on a fresh stream of its own, in microseconds: CUDA events behind a short spin, or the
  /// steady clock on CPUs.
  class Timer {
   public:
    virtual ~Timer() = default;
    virtual Stream stream() const = 0;
    virtual Status begin() = 0;
    virtual Expected<double> end_us() = 0;
  };
  virtual Expected<std::unique_ptr<Timer>> timer() const = 0;

 protected:
  Target target_;
  int ordinal_ = 0;
};

/// The host CPU with `threads` OpenMP threads (0: all that the process may use). `arch` "" picks the best
/// ISA, "avx2" or "avx512" restricts it. avx2 needs AVX2, FMA, F16C, BMI1, BMI2, LZCNT, MOVBE and POPCNT; avx512 also
/// AVX-512 F, BW, CD, DQ and VL (its BF16 is used when it is there); all of it enabled by the operating system.
/// `unsupported` when one is missing, `invalid_argument` for another `arch` or too many threads (four for each logical
/// CPU of the machine, and 16 in any case, are allowed), `out_of_memory` when the process cannot start that many now.
Expected<std::shared_ptr<const Device>> cpu_device(int threads = 0, const std::string& arch = "");
/// CUDA device `ordinal` on its primary context (or the caller's current one when it is of that device; a green context's
/// target has that context's SMs).
/// `not_found` when there is no driver or no such device, and says which.
Expected<std::shared_ptr<const Device>> cuda_device(int ordinal = 0);
/// The same with a part of its SMs, `sm_count` rounded up to what the driver can split off (a multiple of 8 on Hopper): a green
/// context, one for each pair of arguments in a process, never destroyed. The driver lets one thread at a time have a green context
/// current: devices of one are for one thread at a time. Errors: `unsupported` before CUDA 12.4, or for more than the driver can
/// split off; `invalid_argument` for none, or for all and more.
Expected<std::shared_ptr<const Device>> cuda_partition(int ordinal, int sm_count);
int cuda_device_count();            ///< 0 when there is no driver
std::string cuda_driver_version();  ///< "13.0", empty when there is no driver

}  // namespace saccade
