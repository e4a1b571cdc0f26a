// NumPy's .npy files (format 1.0 to 3.0, NEP 1). Strict: what is not plainly a little-endian array of a known type is
// refused with a reason. There is no bf16 in .npy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "cli/byte_source.h"
#include "cli/tensor.h"

namespace saccade::cli {

struct NpyHeader {
  DataType dtype = DataType::f32;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::uint64_t data_offset = 0;  ///< bytes from the start of the file
};

/// Checked against the size of the source: the data is exactly what the shape says.
Expected<NpyHeader> read_npy_header(const ByteSource& source);
/// A Fortran-order array comes with column-major strides.
Expected<HostTensor> read_npy(const ByteSource& source);
/// Row-major, format 1.0. `unsupported` for bf16 and fp8, which .npy has no name for.
Status write_npy(const std::string& path, const HostTensor& tensor);

}  // namespace saccade::cli
