// Execution: a Workload's tensors on a device, its plan run and timed, its results brought back.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "cli/workload.h"
#include "runtime/engine.h"
#include "tuner/reference.h"

namespace saccade::cli {

/// Device memory that goes back with the object.
class DeviceBuffer {
 public:
  static Expected<DeviceBuffer> allocate(std::shared_ptr<const Device> device, std::uint64_t bytes);
  /// Allocates and copies.
  static Expected<DeviceBuffer> upload(std::shared_ptr<const Device> device, const void* source, std::uint64_t bytes);
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  void* data() const { return data_; }
  std::uint64_t size() const { return size_; }

 private:
  std::shared_ptr<const Device> device_;
  void* data_ = nullptr;
  std::uint64_t size_ = 0;
};

/// Times of single runs, in microseconds.
struct Timing {
  std::vector<double> samples_us;
  double median_us() const;
  double best_us() const;
};

/// The call of one workload on one device. The workload must outlive it.
class Execution {
 public:
  static Expected<Execution> create(std::shared_ptr<const Device> device, const Workload& workload);

  /// One run on outputs poisoned with NaN, waited for.
  Status run(const Plan& plan);
  /// At least `min_samples` runs and then until `seconds` are over, after one that is not counted.
  Expected<Timing> time(const Plan& plan, double seconds, int min_samples = 3);

  /// O and, when the problem asks for it, LSE of the last run.
  Expected<HostTensor> output() const;
  Expected<HostTensor> lse() const;
  Expected<HostResult> result() const;

 private:
  Status upload();
  Status reserve_workspace(const Plan& plan);
  RunArguments arguments() const;

  std::shared_ptr<const Device> device_;
  const Workload* workload_ = nullptr;
  DeviceBuffer q_, k_, v_, o_, lse_, cu_seqlens_q_, cu_seqlens_kv_, workspace_;
  std::vector<DeviceBuffer> tables_;
  std::vector<TableArgument> table_arguments_;
  std::vector<ScalarArgument> scalar_arguments_;
};

}  // namespace saccade::cli
