// Tensors of any framework, read through DLPack without copies.
#pragma once

#include <nanobind/nanobind.h>
#include <saccade/saccade.h>

#include <cstdint>
#include <string>

#include "python/native/dlpack.h"

namespace saccade::python {

constexpr int kMaxRank = 4;

struct Device {
  bool is_cuda = false;
  int ordinal = 0;
  bool operator==(const Device&) const = default;
  /// "cpu" or "cuda:N"
  std::string name() const { return is_cuda ? "cuda:" + std::to_string(ordinal) : "cpu"; }
};

/// What a framework does for us, found once for each Python type of tensors (saccade._frameworks).
struct Framework {
  const dlpack::DLPackExchangeAPI* exchange = nullptr;  ///< null: __dlpack__ it is
  nanobind::object empty_like;                          ///< (tensor) -> uninitialised tensor, strides in its order
  nanobind::object empty_like_but;  ///< (tensor, size) -> the same with another size of the last dimension
  nanobind::object empty;           ///< (tensor, shape, dtype name) -> uninitialised tensor on its device
  bool takes_out = true;            ///< whether its tensors may be written to
  nanobind::object grad_enabled;    ///< () -> whether gradients are recorded; None: the framework records none
  nanobind::object current_stream;  ///< (ordinal) -> address of the CUDA stream that the framework works on
};

/// The framework of a tensor. Raises TypeError for objects that are no tensors.
const Framework& framework_of(nanobind::handle object, const char* name);

/// A tensor's memory. The owner must outlive it.
struct Tensor {
  void* data = nullptr;
  Device device;
  saccade_dtype dtype = SACCADE_F32;
  int rank = 0;
  bool read_only = false;
  std::int64_t shape[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};  ///< elements
  std::int64_t elements() const;
  /// Bytes from the first to the last element.
  std::int64_t span_bytes() const;
};

/// Reads tensors and holds what their producers handed out until it goes.
class TensorReader {
 public:
  /// The CUDA stream of the work to come, which producers without an exchange API are told.
  void set_stream(std::int64_t stream) { stream_ = stream; }

  TensorReader() = default;
  ~TensorReader();
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;

  /// `name` is for messages. Raises InvalidArgument for ranks above 4, dtypes that Saccade has no name for and
  /// devices that are neither CPU nor CUDA.
  Tensor read(nanobind::handle object, const char* name);

 private:
  static constexpr int kMost = 20;  // q, k, v, o, lse, two of cu_seqlens, workspace, 8 tables
  PyObject* held_[kMost] = {};
  int count_ = 0;
  std::int64_t stream_ = 0;
};

/// "f16", "bf16", ...
const char* name_of(saccade_dtype dtype);
int size_of(saccade_dtype dtype);

}  // namespace saccade::python
