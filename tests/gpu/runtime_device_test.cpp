#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdint>
#include <numeric>
#include <thread>

#include "tests/gpu/runtime_support.h"

namespace saccade::gpu_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

/// Driver functions that only these tests need.
template <class Function>
Function* driver_function(const char* name) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function*>(library == nullptr ? nullptr : dlsym(library, name));
}

class CudaDeviceTest : public GpuTest {};

TEST_F(CudaDeviceTest, TargetDescribesTheDevice) {
  const Target& target = device_->target();
  EXPECT_EQ(target.kind, Target::Kind::cuda);
  EXPECT_GE(target.compute_capability, 80);
  EXPECT_EQ(target.arch.substr(0, 3), "sm_");
  EXPECT_EQ(target.arch.back() == 'a', target.compute_capability >= 90);
  EXPECT_GT(target.sm_count, 0);
  EXPECT_GE(target.shared_bytes_per_block, 96 * 1024);
  EXPECT_GE(target.shared_bytes_per_sm, target.shared_bytes_per_block);
  EXPECT_GT(target.l2_bytes, 1 << 20);
  EXPECT_GT(target.clock_mhz, 100);
  EXPECT_GT(target.memory_gb_per_s, 50);
  EXPECT_LT(target.memory_gb_per_s, 50'000);
  EXPECT_FALSE(target.name.empty());
}

TEST_F(CudaDeviceTest, SameOrdinalGivesTheSameDevice) {
  EXPECT_EQ(*cuda_device(0), *cuda_device(0));
  EXPECT_GE(cuda_device_count(), 1);
  EXPECT_FALSE(cuda_driver_version().empty());
}

TEST_F(CudaDeviceTest, APartOfTheDeviceHasItsSms) {
  const int all = device_->target().sm_count;
  const auto half = cuda_partition(0, all / 2);
  if (half.status().code() == StatusCode::unsupported) GTEST_SKIP() << half.status().message();
  ASSERT_TRUE(half.ok()) << half.status().message();
  EXPECT_GE((*half)->target().sm_count, all / 2);
  EXPECT_LT((*half)->target().sm_count, all);
  EXPECT_EQ(*half, *cuda_partition(0, all / 2));
  EXPECT_EQ(*cuda_device(0), device_) << "the caller's context is as it was";
  for (const int count : {0, -1, all, all + 1})
    EXPECT_EQ(cuda_partition(0, count).status().code(), StatusCode::invalid_argument) << count;
}

TEST_F(CudaDeviceTest, MissingDevicesAreNotFound) {
  for (const int ordinal : {-1, 4095}) {
    const auto device = cuda_device(ordinal);
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.status().code(), StatusCode::not_found);
  }
}

TEST_F(CudaDeviceTest, MemoryIsCopiedAndFilled) {
  DeviceMemory memory(*device_, 4096);
  ASSERT_TRUE(device_->fill(memory.get(), 0xa5, 4096).ok());
  EXPECT_THAT(memory.download<unsigned char>(4096), Each(0xa5));
  std::vector<int> values(1024);
  std::iota(values.begin(), values.end(), -7);
  memory.upload(values);
  EXPECT_EQ(memory.download<int>(1024), values);
}

TEST_F(CudaDeviceTest, ZeroBytesAreFineAndTooManyAreOutOfMemory) {
  const Expected<void*> nothing = device_->allocate(0);
  ASSERT_TRUE(nothing.ok());
  EXPECT_TRUE(device_->copy_to_host(nullptr, *nothing, 0).ok());
  EXPECT_TRUE(device_->fill(*nothing, 0, 0).ok());
  device_->release(*nothing);
  device_->release(nullptr);
  const Expected<void*> too_much = device_->allocate(std::size_t{1} << 50);
  ASSERT_FALSE(too_much.ok());
  EXPECT_EQ(too_much.status().code(), StatusCode::out_of_memory);
}

TEST_F(CudaDeviceTest, LaunchRunsTheKernelWithItsParams) {
  const auto kernel = load(kAddSource, {add_launch(8)});
  ASSERT_NE(kernel, nullptr);
  DeviceMemory input(*device_, 4096), output(*device_, 4096);
  input.upload(std::vector<float>(1024, 1.5F));
  ASSERT_TRUE(device_->fill(output.get(), 0xff, 4096).ok());  // NaN
  ASSERT_TRUE(kernel->launch(add_launch(8), add_params(input, output, 3), nullptr).ok());
  ASSERT_TRUE(device_->synchronize().ok());
  EXPECT_THAT(output.download<float>(1024), Each(4.5F));
}

TEST_F(CudaDeviceTest, LaunchOfNoBlocksDoesNothing) {
  const auto kernel = load(kAddSource, {add_launch(1)});
  ASSERT_NE(kernel, nullptr);
  EXPECT_TRUE(kernel->launch(add_launch(0), KernelParams{}, nullptr).ok());
  EXPECT_TRUE(device_->synchronize().ok());
}

TEST_F(CudaDeviceTest, DynamicSharedMemoryUpToTheOptInMaximumIsGranted) {
  const auto most = static_cast<std::uint32_t>(device_->target().shared_bytes_per_block);
  const auto kernel = load(kAddSource, {add_launch(1, 1024), add_launch(1, most)});
  ASSERT_NE(kernel, nullptr);
  DeviceMemory input(*device_, 512), output(*device_, 512);
  input.upload(std::vector<float>(128, 0.0F));
  const Status status = kernel->launch(add_launch(1, most), add_params(input, output, 1), nullptr);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(device_->synchronize().ok());
  EXPECT_THAT(output.download<float>(128), Each(1.0F));
}

TEST_F(CudaDeviceTest, TooMuchSharedMemoryIsRefusedWhenLoading) {
  const Expected<CompiledBinary> binary = compiler_->compile(kAddSource, device_->target());
  ASSERT_TRUE(binary.ok());
  const auto kernel = device_->load(binary->code, {add_launch(1, 1 << 20)});
  ASSERT_FALSE(kernel.ok());
  EXPECT_THAT(kernel.status().message(), HasSubstr("1048576 bytes of shared memory"));
}

TEST_F(CudaDeviceTest, UnknownSymbolAndUnknownLaunchAreErrors) {
  const Expected<CompiledBinary> binary = compiler_->compile(kAddSource, device_->target());
  ASSERT_TRUE(binary.ok());
  Launch other = add_launch(1);
  other.symbol = "subtract";
  EXPECT_THAT(device_->load(binary->code, {other}).status().message(), HasSubstr("subtract"));
  const auto kernel = device_->load(binary->code, {add_launch(1)});
  ASSERT_TRUE(kernel.ok());
  EXPECT_EQ((*kernel)->launch(other, KernelParams{}, nullptr).code(), StatusCode::internal);
}

TEST_F(CudaDeviceTest, DamagedBinariesAreErrorsNotCrashes) {
  const Expected<CompiledBinary> binary = compiler_->compile(kAddSource, device_->target());
  ASSERT_TRUE(binary.ok());
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{3}, std::size_t{64}, binary->code.size() / 2, binary->code.size() - 1}) {
    EXPECT_FALSE(device_->load(binary->code.substr(0, bytes), {add_launch(1)}).ok()) << bytes;
  }
  EXPECT_FALSE(device_->load(std::string(4096, 'x'), {add_launch(1)}).ok());
}

TEST_F(CudaDeviceTest, BinaryForAnotherArchitectureIsAnErrorThatNamesBoth) {
  Target other = device_->target();
  other.arch = device_->target().compute_capability == 80 ? "sm_90" : "sm_80";
  if (device_->target().compute_capability / 10 == 8) other.arch = "sm_90";
  const Expected<CompiledBinary> binary = compiler_->compile(kAddSource, other);
  ASSERT_TRUE(binary.ok());
  const auto kernel = device_->load(binary->code, {add_launch(1)});
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.status().code(), StatusCode::device_error);
  EXPECT_THAT(kernel.status().message(), HasSubstr(device_->target().arch));
}

TEST_F(CudaDeviceTest, WorksOnAThreadWithNoCurrentContextAndLeavesNone) {
  const auto kernel = load(kAddSource, {add_launch(1)});
  ASSERT_NE(kernel, nullptr);
  DeviceMemory input(*device_, 512), output(*device_, 512);
  input.upload(std::vector<float>(128, 2.0F));
  std::thread([&] {
    cuda::Context current = nullptr;
    EXPECT_EQ(driver_->cuCtxGetCurrent(&current), cuda::kSuccess);
    EXPECT_EQ(current, nullptr);
    EXPECT_TRUE(kernel->launch(add_launch(1), add_params(input, output, 5), nullptr).ok());
    EXPECT_TRUE(device_->synchronize().ok());
    EXPECT_EQ(driver_->cuCtxGetCurrent(&current), cuda::kSuccess);
    EXPECT_EQ(current, nullptr);
  }).join();
  EXPECT_THAT(output.download<float>(128), Each(7.0F));
}

TEST_F(CudaDeviceTest, AnotherDevicesCurrentContextDoesNotMatter) {  // trap 113
  if (cuda_device_count() < 2) GTEST_SKIP() << "needs two devices";
  const auto kernel = load(kAddSource, {add_launch(1)});
  ASSERT_NE(kernel, nullptr);
  DeviceMemory input(*device_, 512), output(*device_, 512);
  input.upload(std::vector<float>(128, 2.0F));
  cuda::DeviceHandle other = 0;
  cuda::Context other_context = nullptr, current = nullptr;
  ASSERT_EQ(driver_->cuDeviceGet(&other, 1), cuda::kSuccess);
  ASSERT_EQ(driver_->cuDevicePrimaryCtxRetain(&other_context, other), cuda::kSuccess);
  ASSERT_EQ(driver_->cuCtxPushCurrent(other_context), cuda::kSuccess);
  EXPECT_TRUE(kernel->launch(add_launch(1), add_params(input, output, 5), nullptr).ok());
  EXPECT_TRUE(device_->synchronize().ok());
  EXPECT_THAT(output.download<float>(128), Each(7.0F));
  EXPECT_EQ(driver_->cuCtxGetCurrent(&current), cuda::kSuccess);
  EXPECT_EQ(current, other_context);
  EXPECT_EQ(driver_->cuCtxPopCurrent(&current), cuda::kSuccess);
}

TEST_F(CudaDeviceTest, CallersOwnContextIsUsedWhenItIsOfTheDevice) {
  // cuCtxCreate_v2 has the prototype that every driver since CUDA 3.2 keeps.
  auto* create = driver_function<cuda::Result(cuda::Context*, unsigned, cuda::DeviceHandle)>("cuCtxCreate_v2");
  auto* destroy = driver_function<cuda::Result(cuda::Context)>("cuCtxDestroy_v2");
  ASSERT_TRUE(create != nullptr && destroy != nullptr);
  cuda::DeviceHandle handle = 0;
  cuda::Context own = nullptr, popped = nullptr;
  ASSERT_EQ(driver_->cuDeviceGet(&handle, 0), cuda::kSuccess);
  ASSERT_EQ(create(&own, 0, handle), cuda::kSuccess);
  const auto in_own = cuda_device(0);
  ASSERT_TRUE(in_own.ok());
  EXPECT_NE(*in_own, device_);
  {
    DeviceMemory memory(**in_own, 16);
    memory.upload(std::vector<int>{1, 2, 3, 4});
    EXPECT_EQ(memory.download<int>(4), (std::vector<int>{1, 2, 3, 4}));
  }
  EXPECT_EQ(driver_->cuCtxPopCurrent(&popped), cuda::kSuccess);
  EXPECT_EQ(*cuda_device(0), device_) << "with no current context, the primary one again";
  EXPECT_EQ(destroy(own), cuda::kSuccess);
}

TEST_F(CudaDeviceTest, TimerMeasuresTheWorkAndNotTheHost) {
  const char* source = R"(
#include "saccade_templates/common/params.h"
extern "C" __global__ void wait(const __grid_constant__ saccade::KernelParams p) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - start < p.total_q);
})";
  Launch launch = add_launch(1);
  launch.symbol = "wait";
  const auto kernel = load(source, {launch});
  ASSERT_NE(kernel, nullptr);
  KernelParams params{};
  params.total_q = 500'000;  // ns
  const auto timer = device_->timer();
  ASSERT_TRUE(timer.ok()) << timer.status().message();
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE((*timer)->begin().ok());
    ASSERT_TRUE(kernel->launch(launch, params, (*timer)->stream()).ok());
    const Expected<double> elapsed_us = (*timer)->end_us();
    ASSERT_TRUE(elapsed_us.ok()) << elapsed_us.status().message();
    EXPECT_GT(*elapsed_us, 490);
    if (round > 0) {
      EXPECT_LT(*elapsed_us, 600);
    }
  }
  ASSERT_TRUE((*timer)->begin().ok());
  const Expected<double> nothing_us = (*timer)->end_us();
  ASSERT_TRUE(nothing_us.ok());
  EXPECT_LT(*nothing_us, 20) << "two events behind a spin have nothing between them";
}

TEST_F(CudaDeviceTest, ManyThreadsLaunchOneKernelOnTheirOwnStreams) {
  const auto kernel = load(kAddSource, {add_launch(8)});
  ASSERT_NE(kernel, nullptr);
  DeviceMemory input(*device_, 4096);
  input.upload(std::vector<float>(1024, 1.0F));
  std::vector<std::unique_ptr<DeviceMemory>> outputs;
  for (int t = 0; t < 8; ++t) outputs.push_back(std::make_unique<DeviceMemory>(*device_, 4096));
  std::vector<std::thread> threads;
  std::vector<int> failures(8, 0);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const auto timer = device_->timer();  // a stream of its own
      for (int i = 0; i < 100; ++i) {
        if (!kernel->launch(add_launch(8), add_params(input, *outputs[t], t), (*timer)->stream()).ok()) ++failures[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(device_->synchronize().ok());
  for (int t = 0; t < 8; ++t) {
    EXPECT_EQ(failures[t], 0);
    EXPECT_THAT(outputs[t]->download<float>(1024), Each(1.0F + static_cast<float>(t)));
  }
}

}  // namespace
}  // namespace saccade::gpu_test
