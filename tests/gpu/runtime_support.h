// What the GPU tests of the runtime share: a device or a visible skip, and small kernels compiled on the spot.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/compiler.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/device.h"

namespace saccade::gpu_test {

/// Skips when there is no CUDA device or no NVRTC, and says which.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override;

  /// Compiles `source` for the device and loads it with these launches.
  std::shared_ptr<const Kernel> load(const std::string& source, const std::vector<Launch>& launches) const;

  const cuda::Driver* driver_ = nullptr;
  const Compiler* compiler_ = nullptr;
  std::shared_ptr<const Device> device_;
};

/// Device memory that is freed when it goes out of scope.
class DeviceMemory {
 public:
  DeviceMemory(const Device& device, std::size_t bytes);
  ~DeviceMemory() { device_.release(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* get() const { return data_; }

  template <class T>
  void upload(const std::vector<T>& values) {
    const Status status = device_.copy_to_device(data_, values.data(), values.size() * sizeof(T));
    ASSERT_TRUE(status.ok()) << status.message();
  }
  template <class T>
  std::vector<T> download(std::size_t count) const {
    std::vector<T> values(count);
    const Status status = device_.copy_to_host(values.data(), data_, count * sizeof(T));
    EXPECT_TRUE(status.ok()) << status.message();
    return values;
  }

 private:
  const Device& device_;
  void* data_ = nullptr;
};

/// o[i] = q[i] + seqlen_q for the first batch * 128 floats: a kernel small enough to see every value of.
extern const char kAddSource[];
Launch add_launch(std::uint32_t blocks, std::uint32_t shared_bytes = 0);
KernelParams add_params(const DeviceMemory& input, const DeviceMemory& output, int addend);

}  // namespace saccade::gpu_test
