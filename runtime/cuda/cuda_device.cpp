// Device and Kernel on the CUDA driver.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "runtime/cuda/cubin.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/spin_kernel.h"
#include "runtime/cuda/tensor_map.h"
#include "runtime/device.h"

namespace saccade {
namespace {

using cuda::ContextScope;
using cuda::Driver;
using cuda::kSuccess;
using cuda::RelaxedCaptureScope;

cuda::DevicePointer device_pointer(const void* pointer) { return reinterpret_cast<cuda::DevicePointer>(pointer); }

class CudaKernel final : public Kernel {
 public:
  CudaKernel(const Driver& driver, cuda::Context context, cuda::Module module)
      : driver_(driver), context_(context), module_(module) {}

  // Work that was enqueued and graphs that were captured must be done with; the engine keeps kernels for its whole
  // life.
  ~CudaKernel() override {
    const ContextScope scope(driver_, context_);
    const RelaxedCaptureScope relaxed(driver_);
    if (scope.result() == kSuccess) driver_.cuModuleUnload(module_);
  }

  Status add(const Launch& launch) {
    const auto known =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.symbol == launch.symbol; });
    if (known != entries_.end()) {
      known->shared_bytes = std::max(known->shared_bytes, launch.shared_bytes);
    } else {
      Entry entry{launch.symbol, nullptr, launch.shared_bytes};
      SACCADE_TRY(driver_.check(driver_.cuModuleGetFunction(&entry.function, module_, launch.symbol.c_str()),
                                fmt::format("finding kernel \"{}\" in its binary", launch.symbol)));
      entries_.push_back(std::move(entry));
    }
    return {};
  }

  Status set_shared_limits() {
    for (const Entry& entry : entries_) {
      SACCADE_TRY(driver_.check(
          driver_.cuFuncSetAttribute(entry.function, cuda::kFunctionMaxDynamicSharedBytes,
                                     static_cast<int>(entry.shared_bytes)),
          fmt::format("giving kernel \"{}\" {} bytes of shared memory", entry.symbol, entry.shared_bytes)));
    }
    return {};
  }

  Status launch(const Launch& launch, const KernelParams& params, Stream stream) const override {
    if (launch.grid == 0) return {};
    const Entry* entry = find(launch.symbol);
    if (entry == nullptr) return Status::internal(fmt::format("kernel \"{}\" was not loaded", launch.symbol));
    const cuda::LaunchConfig config{
        launch.grid, 1, 1, launch.block, 1, 1, launch.shared_bytes, static_cast<cuda::StreamHandle>(stream),
        nullptr,     0};
    const ContextScope scope(driver_, context_);
    TensorMaps maps;
    if (launch.tensor_maps) SACCADE_TRY(cuda::encode(driver_, *launch.tensor_maps, params, maps));
    void* arguments[] = {const_cast<KernelParams*>(&params), &maps};  // a kernel without maps looks at the first only
    cuda::Result result = scope.result();
    if (result == kSuccess) result = driver_.cuLaunchKernelEx(&config, entry->function, arguments, nullptr);
    if (result == kSuccess) return {};
    return driver_.check(result,
                         fmt::format("launching \"{}\" with {} blocks of {} threads and {} bytes of shared memory",
                                     launch.symbol, launch.grid, launch.block, launch.shared_bytes));
  }

 private:
  struct Entry {
    std::string symbol;
    cuda::Function function;
    std::uint32_t shared_bytes;
  };

  const Entry* find(const std::string& symbol) const {
    for (const Entry& entry : entries_) {
      if (entry.symbol == symbol) return &entry;
    }
    return nullptr;
  }

  const Driver& driver_;
  cuda::Context context_;
  cuda::Module module_;
  std::vector<Entry> entries_;
};

class CudaTimer final : public Device::Timer {
 public:
  CudaTimer(const Driver& driver, cuda::Context context) : driver_(driver), context_(context) {}

  ~CudaTimer() override {
    const ContextScope scope(driver_, context_);
    if (scope.result() != kSuccess) return;
    if (stream_ != nullptr) driver_.cuStreamSynchronize(stream_);
    if (first_ != nullptr) driver_.cuEventDestroy(first_);
    if (last_ != nullptr) driver_.cuEventDestroy(last_);
    if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
  }

  Status create() {
    const ContextScope scope(driver_, context_);
    SACCADE_TRY(driver_.check(scope.result(), "making the device's context current"));
    SACCADE_TRY(driver_.check(driver_.cuStreamCreate(&stream_, cuda::kStreamNonBlocking), "creating a stream"));
    SACCADE_TRY(driver_.check(driver_.cuEventCreate(&first_, cuda::kEventDefault), "creating an event"));
    SACCADE_TRY(driver_.check(driver_.cuEventCreate(&last_, cuda::kEventDefault), "creating an event"));
    return spin_.load(driver_);
  }

  Stream stream() const override { return stream_; }

  Status begin() override {
    const ContextScope scope(driver_, context_);
    SACCADE_TRY(driver_.check(scope.result(), "making the device's context current"));
    SACCADE_TRY(spin_.enqueue(driver_, kSpinNanoseconds, stream_));
    return driver_.check(driver_.cuEventRecord(first_, stream_), "recording an event");
  }

  Expected<double> end_us() override {
    const ContextScope scope(driver_, context_);
    SACCADE_TRY(driver_.check(scope.result(), "making the device's context current"));
    SACCADE_TRY(driver_.check(driver_.cuEventRecord(last_, stream_), "recording an event"));
    SACCADE_TRY(driver_.check(driver_.cuStreamSynchronize(stream_), "waiting for the timed work"));
    float elapsed_ms = 0;
    SACCADE_TRY(driver_.check(driver_.cuEventElapsedTime(&elapsed_ms, first_, last_), "reading the elapsed time"));
    return 1e3 * static_cast<double>(elapsed_ms);
  }

 private:
  // Long enough for the host to enqueue the timed work behind it (a launch costs 2 to 5 us), so no host time is
  // measured.
  static constexpr unsigned long long kSpinNanoseconds = 30'000;

  const Driver& driver_;
  cuda::Context context_;
  cuda::StreamHandle stream_ = nullptr;
  cuda::Event first_ = nullptr, last_ = nullptr;
  cuda::SpinKernel spin_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(const Driver& driver, cuda::Context context, int ordinal, Target target)
      : driver_(driver), context_(context) {
    ordinal_ = ordinal;
    target_ = std::move(target);
  }

  Expected<std::shared_ptr<const Kernel>> load(const std::string& code,
                                               const std::vector<Launch>& launches) const override {
    const ContextScope scope(driver_, context_);
    const RelaxedCaptureScope relaxed(driver_);
    SACCADE_TRY(driver_.check(scope.result(), "making the device's context current"));
    if (!is_complete_cubin(code)) return Status::device_error("the binary is not a complete cubin");
    cuda::Module module = nullptr;
    const cuda::Result result = driver_.cuModuleLoadDataEx(&module, code.data(), 0, nullptr, nullptr);
    if (result != kSuccess) return driver_.check(result, load_failure(result));
    auto kernel = std::make_shared<CudaKernel>(driver_, context_, module);
    for (const Launch& launch : launches) SACCADE_TRY(kernel->add(launch));
    SACCADE_TRY(kernel->set_shared_limits());
    return std::shared_ptr<const Kernel>(std::move(kernel));
  }

  Expected<void*> allocate(std::size_t bytes) const override {
    const ContextScope scope(driver_, context_);
    const RelaxedCaptureScope relaxed(driver_);
    SACCADE_TRY(driver_.check(scope.result(), "making the device's context current"));
    cuda::DevicePointer memory = 0;
    // The driver refuses zero bytes; one keeps the contract that a success is a pointer to release.
    SACCADE_TRY(driver_.check(driver_.cuMemAlloc(&memory, std::max<std::size_t>(bytes, 1)),
                              fmt::format("allocating {} bytes on CUDA device {}", bytes, ordinal_)));
    return reinterpret_cast<void*>(memory);
  }

  void release(void* memory) const override {
    const ContextScope scope(driver_, context_);
    const RelaxedCaptureScope relaxed(driver_);
    if (memory != nullptr && scope.result() == kSuccess) driver_.cuMemFree(device_pointer(memory));
  }

  Status copy_to_device(void* destination, const void* source, std::size_t bytes) const override {
    if (bytes == 0) return {};
    const ContextScope scope(driver_, context_);
    SACCADE_TRY(driver_.check(scope.result(), "making the device's context current"));
    return driver_.check(driver_.cuMemcpyHtoD(device_pointer(destination), source, bytes),
                         fmt::format("copying {} bytes to CUDA device {}", bytes, ordinal_));
  }

  Status copy_to_host(void* destination, const void* source, std::size_t bytes) const override {
    if (bytes == 0) return {};
    const ContextScope scope(driver_, context_);
    SACCADE_TRY(driver_.check(scope.result(), "making the device's context current"));
    return driver_.check(driver_.cuMemcpyDtoH(destination, device_pointer(source), bytes),
                         fmt::format("copying {} bytes from CUDA device {}", bytes, ordinal_));
  }

  Status fill(void* destination, unsigned char value, std::size_t bytes) const override {
    if (bytes == 0) return {};
    const ContextScope scope(driver_, context_);
    SACCADE_TRY(driver_.check(scope.result(), "making the device's context current"));
    SACCADE_TRY(driver_.check(driver_.cuMemsetD8(device_pointer(destination), value, bytes),
                              fmt::format("filling {} bytes on CUDA device {}", bytes, ordinal_)));
    // cuMemsetD8 may return early, and the timer's streams do not wait for the default stream.
    return driver_.check(driver_.cuStreamSynchronize(nullptr), "waiting for the fill");
  }

  Status synchronize() const override {
    const ContextScope scope(driver_, context_);
    SACCADE_TRY(driver_.check(scope.result(), "making the device's context current"));
    return driver_.check(driver_.cuCtxSynchronize(), fmt::format("waiting for CUDA device {}", ordinal_));
  }

  Expected<bool> is_capturing(Stream stream) const override {
    const ContextScope scope(driver_, context_);
    SACCADE_TRY(driver_.check(scope.result(), "making the device's context current"));
    int status = cuda::kCaptureStatusNone;
    const cuda::Result result = driver_.cuStreamIsCapturing(static_cast<cuda::StreamHandle>(stream), &status);
    // The legacy default stream cannot be asked while a blocking stream of the context is being captured.
    if (result == cuda::kErrorStreamCaptureImplicit) return true;
    SACCADE_TRY(driver_.check(result, "asking whether the stream is being captured"));
    return status != cuda::kCaptureStatusNone;
  }

  Expected<std::unique_ptr<Timer>> timer() const override {
    auto made = std::make_unique<CudaTimer>(driver_, context_);
    SACCADE_TRY(made->create());
    return std::unique_ptr<Timer>(std::move(made));
  }

 private:
  std::string load_failure(cuda::Result result) const {
    std::string text =
        fmt::format("loading a cubin for {} on CUDA device {} ({})", target_.arch, ordinal_, target_.name);
    if (result == cuda::kErrorNoBinaryForGpu || result == cuda::kErrorInvalidImage ||
        result == cuda::kErrorUnsupportedPtxVersion) {
      text += fmt::format(
          "; the driver supports CUDA {}: an NVRTC of a newer major version makes cubins that it cannot load",
          cuda_driver_version());
    }
    return text;
  }

  const Driver& driver_;
  cuda::Context context_;
};

class TargetReader {
 public:
  TargetReader(const Driver& driver, cuda::DeviceHandle device, cuda::Context context)
      : driver_(driver), device_(device), context_(context) {}

  Expected<Target> read() {
    Target target;
    target.kind = Target::Kind::cuda;
    const int major = attribute(cuda::kComputeCapabilityMajor);
    const int minor = attribute(cuda::kComputeCapabilityMinor);
    target.compute_capability = 10 * major + minor;
    // From compute capability 9.0 on, the instructions that attention lives on (wgmma, tcgen05) exist only in the
    // architecture-specific targets (PTX ISA, section on .target).
    target.arch = fmt::format("sm_{}{}", target.compute_capability, target.compute_capability >= 90 ? "a" : "");
    char name[256] = {};
    keep(driver_.cuDeviceGetName(name, sizeof name, device_));
    target.name = name;
    target.sm_count = sms_of_context(attribute(cuda::kMultiprocessorCount));
    target.shared_bytes_per_block = attribute(cuda::kSharedBytesPerBlockOptin);
    target.shared_bytes_per_sm = attribute(cuda::kSharedBytesPerMultiprocessor);
    target.clock_mhz = attribute(cuda::kClockRateKhz) / 1000;
    target.l2_bytes = attribute(cuda::kL2CacheBytes);
    // Two transfers a clock: the memory rates that NVIDIA publishes follow from these two attributes.
    target.memory_gb_per_s =
        2.0 * attribute(cuda::kMemoryClockRateKhz) * attribute(cuda::kMemoryBusWidthBits) / 8 / 1e6;
    SACCADE_TRY(driver_.check(result_, "reading the attributes of the CUDA device"));
    complete_from_typical(target);
    return target;
  }

 private:
  void keep(cuda::Result result) {
    if (result_ == kSuccess) result_ = result;
  }

  int attribute(int which) {
    int value = 0;
    keep(driver_.cuDeviceGetAttribute(&value, which, device_));
    return value;
  }

  /// A green context has a part of the device's SMs: a persistent grid is as large as that.
  int sms_of_context(int of_device) const {
    cuda::DevResource resource{};
    const auto ask = driver_.partitioning.cuCtxGetDevResource;
    if (ask == nullptr || ask(context_, &resource, cuda::kResourceTypeSm) != kSuccess) return of_device;
    return resource.sm_count > 0 ? std::min(of_device, static_cast<int>(resource.sm_count)) : of_device;
  }

  /// Virtual GPUs report 0 for clocks; a typical member of the architecture is better than a division by zero.
  static void complete_from_typical(Target& target) {
    if (target.clock_mhz > 0 && target.memory_gb_per_s > 0) return;
    const Expected<Target> typical = cuda_target(target.arch);
    if (!typical.ok()) return;
    if (target.clock_mhz <= 0) target.clock_mhz = typical->clock_mhz;
    if (target.memory_gb_per_s <= 0) target.memory_gb_per_s = typical->memory_gb_per_s;
  }

  const Driver& driver_;
  cuda::DeviceHandle device_;
  cuda::Context context_;
  cuda::Result result_ = kSuccess;
};

/// A green context of at least `sm_count` SMs, never destroyed.
Expected<cuda::Context> make_partition(const Driver& driver, cuda::DeviceHandle device, int sm_count) {
  const cuda::Partitioning& api = driver.partitioning;
  if (api.cuGreenCtxCreate == nullptr)
    return Status::unsupported("a part of a GPU: the driver has no green contexts; one for CUDA 12.4 or newer has");
  const std::string what = fmt::format("making a green context of {} SMs of CUDA device {}", sm_count, device);
  cuda::DevResource whole{}, part{};
  void *description = nullptr, *green = nullptr;
  cuda::Context context = nullptr;
  unsigned groups = 1;
  SACCADE_TRY(driver.check(api.cuDeviceGetDevResource(device, &whole, cuda::kResourceTypeSm), what));
  SACCADE_TRY(driver.check(
      api.cuDevSmResourceSplitByCount(&part, &groups, &whole, nullptr, 0, static_cast<unsigned>(sm_count)), what));
  if (groups != 1) return Status::unsupported(fmt::format("{}: the driver makes no group of so many", what));
  SACCADE_TRY(driver.check(api.cuDevResourceGenerateDesc(&description, &part, 1), what));
  SACCADE_TRY(driver.check(api.cuGreenCtxCreate(&green, description, device, cuda::kGreenDefaultStream), what));
  SACCADE_TRY(driver.check(api.cuCtxFromGreenCtx(&context, green), what));
  return context;
}

/// The caller's current context when it is of `device`, else the device's primary one (retained for the process's
/// life).
Expected<cuda::Context> choose_context(const Driver& driver, cuda::DeviceHandle device) {
  cuda::Context current = nullptr;
  cuda::DeviceHandle current_device = -1;
  if (driver.cuCtxGetCurrent(&current) == kSuccess && current != nullptr &&
      driver.cuCtxGetDevice(&current_device) == kSuccess && current_device == device) {
    return current;
  }
  static std::mutex mutex;
  static auto& primary = *new std::map<cuda::DeviceHandle, cuda::Context>;
  const std::lock_guard lock(mutex);
  const auto known = primary.find(device);
  if (known != primary.end()) return known->second;
  cuda::Context context = nullptr;
  SACCADE_TRY(driver.check(driver.cuDevicePrimaryCtxRetain(&context, device),
                           fmt::format("opening the primary context of CUDA device {}", device)));
  primary.emplace(device, context);
  return context;
}

}  // namespace

Expected<std::shared_ptr<const Device>> cuda_device(int ordinal) {
  SACCADE_ASSIGN(const Driver* driver, cuda::driver());
  int count = 0;
  SACCADE_TRY(driver->check(driver->cuDeviceGetCount(&count), "counting CUDA devices"));
  if (ordinal < 0 || ordinal >= count) {
    return Status::not_found(fmt::format("there is no CUDA device {}: the driver sees {} device(s)", ordinal, count));
  }
  cuda::DeviceHandle handle = 0;
  SACCADE_TRY(driver->check(driver->cuDeviceGet(&handle, ordinal), fmt::format("opening CUDA device {}", ordinal)));
  SACCADE_ASSIGN(cuda::Context context, choose_context(*driver, handle));
  unsigned long long context_id = 0;  // An address may be reused by a later context, an id never is.
  SACCADE_TRY(driver->check(driver->cuCtxGetId(context, &context_id), "identifying the context"));

  static std::mutex mutex;
  static auto& devices = *new std::map<std::pair<int, unsigned long long>, std::shared_ptr<const Device>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Device>& device = devices[{ordinal, context_id}];
  if (device == nullptr) {
    SACCADE_ASSIGN(Target target, TargetReader(*driver, handle, context).read());
    device = std::make_shared<CudaDevice>(*driver, context, ordinal, std::move(target));
  }
  return device;
}

Expected<std::shared_ptr<const Device>> cuda_partition(int ordinal, int sm_count) {
  static std::mutex mutex;
  static auto& partitions = *new std::map<std::pair<int, int>, cuda::Context>;
  SACCADE_ASSIGN(const auto device, cuda_device(ordinal));  // also checks the ordinal
  SACCADE_ASSIGN(const Driver* driver, cuda::driver());
  cuda::DeviceHandle handle = 0;
  SACCADE_TRY(driver->check(driver->cuDeviceGet(&handle, ordinal), fmt::format("opening CUDA device {}", ordinal)));
  int all = 0;
  SACCADE_TRY(driver->check(driver->cuDeviceGetAttribute(&all, cuda::kMultiprocessorCount, handle), "counting SMs"));
  if (sm_count < 1 || sm_count >= all)
    return Status::invalid_argument(
        fmt::format("{} of the {} SMs of CUDA device {}: a part is less than all", sm_count, all, ordinal));
  const std::lock_guard lock(mutex);
  cuda::Context& context = partitions[{ordinal, sm_count}];
  if (context == nullptr) {
    SACCADE_ASSIGN(context, make_partition(*driver, handle, sm_count));
  }
  const cuda::ContextScope scope(*driver, context);
  SACCADE_TRY(driver->check(scope.result(), "making a green context current"));
  return cuda_device(ordinal);
}

int cuda_device_count() {
  const Expected<const Driver*> driver = cuda::driver();
  int count = 0;
  if (!driver.ok() || (*driver)->cuDeviceGetCount(&count) != kSuccess) return 0;
  return count;
}

std::string cuda_driver_version() {
  const Expected<const Driver*> driver = cuda::driver();
  if (!driver.ok()) return {};
  return fmt::format("{}.{}", (*driver)->version / 1000, (*driver)->version % 1000 / 10);
}

}  // namespace saccade
