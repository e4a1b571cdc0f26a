#include "tests/gpu/runtime_support.h"

namespace saccade::gpu_test {

const char kAddSource[] = R"(
#include "saccade_templates/common/params.h"
extern "C" __global__ void add(const __grid_constant__ saccade::KernelParams p) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  static_cast<float*>(p.o)[i] = static_cast<const float*>(p.q)[i] + p.seqlen_q;
}
)";

Launch add_launch(std::uint32_t blocks, std::uint32_t shared_bytes) {
  Launch launch;
  launch.symbol = "add";
  launch.grid = blocks;
  launch.block = 128;
  launch.shared_bytes = shared_bytes;
  return launch;
}

KernelParams add_params(const DeviceMemory& input, const DeviceMemory& output, int addend) {
  KernelParams params{};
  params.q = input.get();
  params.o = output.get();
  params.seqlen_q = addend;
  return params;
}

void GpuTest::SetUp() {
  const Expected<const cuda::Driver*> driver = cuda::driver();
  if (!driver.ok()) GTEST_SKIP() << driver.status().message();
  driver_ = *driver;
  const Expected<const Compiler*> compiler = nvrtc_compiler();
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().message();
  compiler_ = *compiler;
  const auto device = cuda_device(0);
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  device_ = *device;
}

std::shared_ptr<const Kernel> GpuTest::load(const std::string& source, const std::vector<Launch>& launches) const {
  const Expected<CompiledBinary> binary = compiler_->compile(source, device_->target());
  EXPECT_TRUE(binary.ok()) << binary.status().message();
  if (!binary.ok()) return nullptr;
  const auto kernel = device_->load(binary->code, launches);
  EXPECT_TRUE(kernel.ok()) << kernel.status().message();
  return kernel.ok() ? *kernel : nullptr;
}

DeviceMemory::DeviceMemory(const Device& device, std::size_t bytes) : device_(device) {
  const Expected<void*> memory = device.allocate(bytes);
  EXPECT_TRUE(memory.ok()) << memory.status().message();
  if (memory.ok()) data_ = *memory;
}

}  // namespace saccade::gpu_test
