#include "runtime/cuda/cuda_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>

namespace saccade::cuda {
namespace {

// The oldest driver whose cubin loader and cuCtxGetId Saccade relies on (R525).
constexpr int kOldestDriver = 12000;

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

template <class Pointer>
bool resolve(void* library, const char* name, Pointer& slot, std::string& missing) {
  slot = reinterpret_cast<Pointer>(dlsym(library, name));
  if (slot == nullptr && missing.empty()) missing = name;
  return slot != nullptr;
}

/// Returns the first name that the library lacks, empty when all are there.
std::string resolve_all(void* library, Driver& api) {
  std::string missing;
  resolve(library, "cuInit", api.cuInit, missing);
  resolve(library, "cuDriverGetVersion", api.cuDriverGetVersion, missing);
  resolve(library, "cuGetErrorName", api.cuGetErrorName, missing);
  resolve(library, "cuGetErrorString", api.cuGetErrorString, missing);
  resolve(library, "cuDeviceGetCount", api.cuDeviceGetCount, missing);
  resolve(library, "cuDeviceGet", api.cuDeviceGet, missing);
  resolve(library, "cuDeviceGetName", api.cuDeviceGetName, missing);
  resolve(library, "cuDeviceGetAttribute", api.cuDeviceGetAttribute, missing);
  resolve(library, "cuDevicePrimaryCtxRetain", api.cuDevicePrimaryCtxRetain, missing);
  resolve(library, "cuCtxGetCurrent", api.cuCtxGetCurrent, missing);
  resolve(library, "cuCtxPushCurrent_v2", api.cuCtxPushCurrent, missing);
  resolve(library, "cuCtxPopCurrent_v2", api.cuCtxPopCurrent, missing);
  resolve(library, "cuCtxGetDevice", api.cuCtxGetDevice, missing);
  resolve(library, "cuCtxGetId", api.cuCtxGetId, missing);
  resolve(library, "cuCtxSynchronize", api.cuCtxSynchronize, missing);
  resolve(library, "cuModuleLoadDataEx", api.cuModuleLoadDataEx, missing);
  resolve(library, "cuModuleUnload", api.cuModuleUnload, missing);
  resolve(library, "cuModuleGetFunction", api.cuModuleGetFunction, missing);
  resolve(library, "cuFuncGetAttribute", api.cuFuncGetAttribute, missing);
  resolve(library, "cuFuncSetAttribute", api.cuFuncSetAttribute, missing);
  resolve(library, "cuLaunchKernelEx", api.cuLaunchKernelEx, missing);
  resolve(library, "cuTensorMapEncodeTiled", api.cuTensorMapEncodeTiled, missing);
  resolve(library, "cuMemAlloc_v2", api.cuMemAlloc, missing);
  resolve(library, "cuMemFree_v2", api.cuMemFree, missing);
  resolve(library, "cuMemcpyHtoD_v2", api.cuMemcpyHtoD, missing);
  resolve(library, "cuMemcpyDtoH_v2", api.cuMemcpyDtoH, missing);
  resolve(library, "cuMemsetD8_v2", api.cuMemsetD8, missing);
  resolve(library, "cuStreamCreate", api.cuStreamCreate, missing);
  resolve(library, "cuStreamDestroy_v2", api.cuStreamDestroy, missing);
  resolve(library, "cuStreamSynchronize", api.cuStreamSynchronize, missing);
  resolve(library, "cuStreamIsCapturing", api.cuStreamIsCapturing, missing);
  resolve(library, "cuThreadExchangeStreamCaptureMode", api.cuThreadExchangeStreamCaptureMode, missing);
  resolve(library, "cuEventCreate", api.cuEventCreate, missing);
  resolve(library, "cuEventDestroy_v2", api.cuEventDestroy, missing);
  resolve(library, "cuEventRecord", api.cuEventRecord, missing);
  resolve(library, "cuEventElapsedTime", api.cuEventElapsedTime, missing);
  return missing;
}

void resolve_partitioning(void* library, Partitioning& api) {
  std::string missing;
  resolve(library, "cuCtxGetDevResource", api.cuCtxGetDevResource, missing);
  resolve(library, "cuDeviceGetDevResource", api.cuDeviceGetDevResource, missing);
  resolve(library, "cuDevSmResourceSplitByCount", api.cuDevSmResourceSplitByCount, missing);
  resolve(library, "cuDevResourceGenerateDesc", api.cuDevResourceGenerateDesc, missing);
  resolve(library, "cuGreenCtxCreate", api.cuGreenCtxCreate, missing);
  resolve(library, "cuCtxFromGreenCtx", api.cuCtxFromGreenCtx, missing);
  if (!missing.empty()) api = {};
}

Expected<const Driver*> open_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status::not_found(fmt::format(
        "no CUDA driver: libcuda.so.1 cannot be opened ({}); install the NVIDIA driver, or use device \"cpu\"",
        dlerror()));
  }
  auto api = std::make_unique<Driver>();
  const std::string missing = resolve_all(library, *api);
  resolve_partitioning(library, api->partitioning);
  int version = 0;
  if (api->cuDriverGetVersion != nullptr && api->cuDriverGetVersion(&version) == kSuccess && version < kOldestDriver) {
    return Status::not_found(
        fmt::format("the CUDA driver is too old: it supports CUDA {}, Saccade needs {} (R525) or newer",
                    version_text(version), version_text(kOldestDriver)));
  }
  if (!missing.empty()) {
    return Status::not_found(
        fmt::format("the CUDA driver has no function {}; Saccade needs a driver for CUDA {} or newer", missing,
                    version_text(kOldestDriver)));
  }
  api->version = version;
  if (const Result result = api->cuInit(0); result != kSuccess) {
    return Status::not_found(fmt::format("the CUDA driver ({}) finds no usable device: cuInit gave {}",
                                         version_text(version), api->describe(result)));
  }
  return api.release();  // The driver stays open for the life of the process.
}

}  // namespace

std::string Driver::describe(Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != kSuccess || name == nullptr) return fmt::format("CUDA error {}", result);
  if (cuGetErrorString(result, &text) != kSuccess || text == nullptr) return name;
  return fmt::format("{} ({})", name, text);
}

Status Driver::check(Result result, std::string_view what) const {
  if (result == kSuccess) return {};
  std::string message = fmt::format("{}: {}", what, describe(result));
  switch (result) {
    case kErrorOutOfMemory: return {StatusCode::out_of_memory, std::move(message)};
    case kErrorNoDevice:
    case kErrorInvalidDevice: return {StatusCode::not_found, std::move(message)};
    case kErrorNotInitialized:
      return {StatusCode::device_error,
              message +
                  "; CUDA cannot be used in a process forked from one that had initialised it: exec or spawn instead"};
    default: return {StatusCode::device_error, std::move(message)};
  }
}

Expected<const Driver*> driver() {
  static const Expected<const Driver*> opened = open_driver();
  return opened;
}

ContextScope::ContextScope(const Driver& driver, Context wanted) : driver_(driver) {
  Context current = nullptr;
  result_ = driver_.cuCtxGetCurrent(&current);
  if (result_ != kSuccess || current == wanted) return;
  result_ = driver_.cuCtxPushCurrent(wanted);
  pushed_ = result_ == kSuccess;
}

ContextScope::~ContextScope() {
  Context popped = nullptr;
  if (pushed_) driver_.cuCtxPopCurrent(&popped);
}

}  // namespace saccade::cuda
