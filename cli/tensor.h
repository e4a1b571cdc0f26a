// HostTensor: a tensor read from a file or about to be written to one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"

namespace saccade::cli {

/// Uninitialised bytes on a 64-byte boundary, so that kernels may read them with any vector load.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  /// `out_of_memory` when there is not that much.
  static Expected<AlignedBytes> allocate(std::uint64_t bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::uint64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* pointer) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::uint64_t size_ = 0;
};

struct HostTensor {
  DataType dtype = DataType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> stride;  ///< elements
  AlignedBytes data;

  std::int64_t elements() const;
};

/// The product of the sizes; an error when one is negative or the product times `element_bytes` exceeds 2^62.
Expected<std::int64_t> checked_elements(std::span<const std::int64_t> shape, std::size_t element_bytes);
/// Strides of a row-major (C order) or column-major (Fortran order) tensor.
std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> shape);
std::vector<std::int64_t> column_major_strides(std::span<const std::int64_t> shape);

/// An uninitialised row-major tensor.
Expected<HostTensor> make_tensor(DataType dtype, std::vector<std::int64_t> shape);
/// The same elements in row-major order (the tensor itself when it already is).
Expected<HostTensor> row_major(HostTensor tensor);
/// "[2, 12, 128, 32]"
std::string shape_text(std::span<const std::int64_t> shape);

/// Reads a .npy file, or one tensor of a .safetensors file; `name` is the tensor's name there and is ignored for .npy.
Expected<HostTensor> read_tensor(const std::string& path, const std::string& name);

}  // namespace saccade::cli
