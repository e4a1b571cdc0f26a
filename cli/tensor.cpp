#include "cli/tensor.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "cli/byte_source.h"
#include "cli/npy.h"
#include "cli/safetensors.h"

namespace saccade::cli {

void AlignedBytes::Free::operator()(std::byte* pointer) const { std::free(pointer); }

Expected<AlignedBytes> AlignedBytes::allocate(std::uint64_t bytes) {
  constexpr std::uint64_t kAlignment = 64;
  AlignedBytes result;
  const std::uint64_t rounded = (bytes / kAlignment + 1) * kAlignment;
  result.data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
  if (!result.data_) return Status(StatusCode::out_of_memory, fmt::format("no memory for a tensor of {} bytes", bytes));
  result.size_ = bytes;
  return result;
}

std::int64_t HostTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

Expected<std::int64_t> checked_elements(std::span<const std::int64_t> shape, std::size_t element_bytes) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 62;
  std::int64_t bytes = static_cast<std::int64_t>(element_bytes);
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return Status::invalid_argument(fmt::format("shape {} has a negative size", shape_text(shape)));
    if (size == 0) empty = true;
  }
  if (empty) return std::int64_t{0};
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > kLimit)
      return Status::invalid_argument(fmt::format("shape {} has more than 2^62 bytes", shape_text(shape)));
  return bytes / static_cast<std::int64_t>(element_bytes);
}

namespace {

/// No stride of a tensor without elements is ever used, and the product of its other sizes may not fit.
bool is_empty(std::span<const std::int64_t> shape) { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }

}  // namespace

std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> stride(shape.size(), 1);
  if (is_empty(shape)) return stride;
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    stride[i] = step;
    step *= shape[i];
  }
  return stride;
}

std::vector<std::int64_t> column_major_strides(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> stride(shape.size(), 1);
  if (is_empty(shape)) return stride;
  std::int64_t step = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    stride[i] = step;
    step *= shape[i];
  }
  return stride;
}

Expected<HostTensor> make_tensor(DataType dtype, std::vector<std::int64_t> shape) {
  SACCADE_ASSIGN(const std::int64_t count, checked_elements(shape, size_of(dtype)));
  HostTensor tensor;
  tensor.dtype = dtype;
  tensor.stride = row_major_strides(shape);
  tensor.shape = std::move(shape);
  SACCADE_ASSIGN(tensor.data, AlignedBytes::allocate(static_cast<std::uint64_t>(count) * size_of(dtype)));
  return tensor;
}

Expected<HostTensor> row_major(HostTensor tensor) {
  if (tensor.stride == row_major_strides(tensor.shape)) return tensor;
  SACCADE_ASSIGN(HostTensor result, make_tensor(tensor.dtype, tensor.shape));
  const std::size_t element_bytes = size_of(tensor.dtype);
  const std::int64_t count = tensor.elements();
  std::vector<std::int64_t> index(tensor.shape.size(), 0);
  std::int64_t source = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(result.data.data() + static_cast<std::size_t>(i) * element_bytes,
                tensor.data.data() + static_cast<std::size_t>(source) * element_bytes, element_bytes);
    for (std::size_t axis = index.size(); axis-- > 0;) {
      source += tensor.stride[axis];
      if (++index[axis] < tensor.shape[axis]) break;
      source -= tensor.stride[axis] * tensor.shape[axis];
      index[axis] = 0;
    }
  }
  return result;
}

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Expected<HostTensor> read_tensor(const std::string& path, const std::string& name) {
  SACCADE_ASSIGN(const std::unique_ptr<ByteSource> source, open_file(path));
  if (path.ends_with(".npy")) return read_npy(*source);
  if (!path.ends_with(".safetensors"))
    return Status::invalid_argument(fmt::format("{}: the file's name must end in .npy or .safetensors", path));
  SACCADE_ASSIGN(const SafetensorsHeader header, read_safetensors_header(*source));
  return read_safetensors_tensor(*source, header, name);
}

}  // namespace saccade::cli
