// The CUDA driver, opened with dlopen. The few types and prototypes that Saccade uses are declared here by hand, so
// that the build needs no CUDA header; names, values and layouts are those of cuda.h (CUDA Driver API reference
// manual).
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace saccade::cuda {

using Result = int;  ///< CUresult
using DeviceHandle = int;
using DevicePointer = unsigned long long;
using Context = struct OpaqueContext*;
using Module = struct OpaqueModule*;
using Function = struct OpaqueFunction*;
using StreamHandle = struct OpaqueStream*;
using Event = struct OpaqueEvent*;

// CUresult
inline constexpr Result kSuccess = 0;
inline constexpr Result kErrorOutOfMemory = 2;
inline constexpr Result kErrorNotInitialized = 3;
inline constexpr Result kErrorNoDevice = 100;
inline constexpr Result kErrorInvalidDevice = 101;
inline constexpr Result kErrorInvalidImage = 200;
inline constexpr Result kErrorNoBinaryForGpu = 209;
inline constexpr Result kErrorUnsupportedPtxVersion = 222;
inline constexpr Result kErrorStreamCaptureImplicit = 906;

// CUdevice_attribute
inline constexpr int kClockRateKhz = 13;
inline constexpr int kMultiprocessorCount = 16;
inline constexpr int kMemoryClockRateKhz = 36;
inline constexpr int kMemoryBusWidthBits = 37;
inline constexpr int kL2CacheBytes = 38;
inline constexpr int kComputeCapabilityMajor = 75;
inline constexpr int kComputeCapabilityMinor = 76;
inline constexpr int kSharedBytesPerMultiprocessor = 81;
inline constexpr int kSharedBytesPerBlockOptin = 97;

// CUfunction_attribute
inline constexpr int kFunctionMaxThreadsPerBlock = 0;
inline constexpr int kFunctionMaxDynamicSharedBytes = 8;

// CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion; the other enumerations' 0 is what is wanted
inline constexpr int kTensorMapUint16 = 1;
inline constexpr int kTensorMapSwizzle64 = 2, kTensorMapSwizzle128 = 3;
inline constexpr int kTensorMapL2Promotion256 = 3;

inline constexpr int kResourceTypeSm = 1;           ///< CU_DEV_RESOURCE_TYPE_SM
inline constexpr unsigned kGreenDefaultStream = 1;  ///< CU_GREEN_CTX_DEFAULT_STREAM, which must be given

inline constexpr int kCaptureStatusNone = 0;   ///< CU_STREAM_CAPTURE_STATUS_NONE
inline constexpr int kCaptureModeRelaxed = 2;  ///< CU_STREAM_CAPTURE_MODE_RELAXED
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;

/// CUlaunchConfig. No launch attribute is used yet, so they stay untyped.
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  StreamHandle stream;
  void* attributes;
  unsigned attribute_count;
};

/// CUdevResource, version 1: of it, Saccade reads the number of SMs.
struct DevResource {
  int type;
  unsigned char padding[92];
  unsigned sm_count;
  unsigned char rest[44];
};
static_assert(sizeof(DevResource) == 144);

/// What partitions a GPU, of drivers for CUDA 12.4 and newer; null where the driver has none.
struct Partitioning {
  Result (*cuCtxGetDevResource)(Context, DevResource*, int type) = nullptr;
  Result (*cuDeviceGetDevResource)(DeviceHandle, DevResource*, int type) = nullptr;
  Result (*cuDevSmResourceSplitByCount)(DevResource* result, unsigned* groups, const DevResource* input,
                                        DevResource* remaining, unsigned flags, unsigned least) = nullptr;
  Result (*cuDevResourceGenerateDesc)(void** description, DevResource*, unsigned count) = nullptr;
  Result (*cuGreenCtxCreate)(void** green, void* description, DeviceHandle, unsigned flags) = nullptr;
  Result (*cuCtxFromGreenCtx)(Context*, void* green) = nullptr;
};

/// The driver's entry points, each under the exported name (with its ABI suffix) that has this prototype.
struct Driver {
  int version = 0;  ///< 1000 * major + 10 * minor

  Result (*cuInit)(unsigned);
  Result (*cuDriverGetVersion)(int*);
  Result (*cuGetErrorName)(Result, const char**);
  Result (*cuGetErrorString)(Result, const char**);
  Result (*cuDeviceGetCount)(int*);
  Result (*cuDeviceGet)(DeviceHandle*, int);
  Result (*cuDeviceGetName)(char*, int, DeviceHandle);
  Result (*cuDeviceGetAttribute)(int*, int, DeviceHandle);
  Result (*cuDevicePrimaryCtxRetain)(Context*, DeviceHandle);
  Result (*cuCtxGetCurrent)(Context*);
  Result (*cuCtxPushCurrent)(Context);
  Result (*cuCtxPopCurrent)(Context*);
  Result (*cuCtxGetDevice)(DeviceHandle*);
  Result (*cuCtxGetId)(Context, unsigned long long*);
  Result (*cuCtxSynchronize)();
  Result (*cuModuleLoadDataEx)(Module*, const void*, unsigned, int*, void**);
  Result (*cuModuleUnload)(Module);
  Result (*cuModuleGetFunction)(Function*, Module, const char*);
  Result (*cuFuncGetAttribute)(int*, int, Function);
  Result (*cuFuncSetAttribute)(Function, int, int);
  Result (*cuLaunchKernelEx)(const LaunchConfig*, Function, void**, void**);
  Result (*cuTensorMapEncodeTiled)(void* map, int data_type, unsigned rank, void* address,
                                   const unsigned long long* extents, const unsigned long long* strides,
                                   const unsigned* box, const unsigned* element_strides, int interleave, int swizzle,
                                   int l2_promotion, int fill);
  Result (*cuMemAlloc)(DevicePointer*, std::size_t);
  Result (*cuMemFree)(DevicePointer);
  Result (*cuMemcpyHtoD)(DevicePointer, const void*, std::size_t);
  Result (*cuMemcpyDtoH)(void*, DevicePointer, std::size_t);
  Result (*cuMemsetD8)(DevicePointer, unsigned char, std::size_t);
  Result (*cuStreamCreate)(StreamHandle*, unsigned);
  Result (*cuStreamDestroy)(StreamHandle);
  Result (*cuStreamSynchronize)(StreamHandle);
  Result (*cuStreamIsCapturing)(StreamHandle, int*);
  Result (*cuThreadExchangeStreamCaptureMode)(int*);
  Result (*cuEventCreate)(Event*, unsigned);
  Result (*cuEventDestroy)(Event);
  Result (*cuEventRecord)(Event, StreamHandle);
  Result (*cuEventElapsedTime)(float*, Event, Event);
  Partitioning partitioning;

  /// "CUDA_ERROR_X (what the driver says)".
  std::string describe(Result result) const;
  /// ok for kSuccess; else out_of_memory, not_found or device_error with "`what`: CUDA_ERROR_X (...)".
  Status check(Result result, std::string_view what) const;
};

/// Opens libcuda.so.1 and initialises the driver, once in a process. `not_found` when there is no driver library, when
/// it sees no device, or when it is older than CUDA 12.0, each with what to do about it.
Expected<const Driver*> driver();

/// Makes `wanted` current on this thread for its lifetime and puts back what was there.
class ContextScope {
 public:
  ContextScope(const Driver& driver, Context wanted);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  Result result() const { return result_; }

 private:
  const Driver& driver_;
  bool pushed_ = false;
  Result result_ = kSuccess;
};

/// Lets this thread load and allocate while some stream of the process is being captured.
class RelaxedCaptureScope {
 public:
  explicit RelaxedCaptureScope(const Driver& driver) : driver_(driver) {
    driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  ~RelaxedCaptureScope() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCaptureScope(const RelaxedCaptureScope&) = delete;
  RelaxedCaptureScope& operator=(const RelaxedCaptureScope&) = delete;

 private:
  const Driver& driver_;
  int mode_ = kCaptureModeRelaxed;
};

}  // namespace saccade::cuda
