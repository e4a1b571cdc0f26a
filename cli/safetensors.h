// .safetensors files: 8 bytes of header length, a JSON header, the tensors' bytes. As strict as the reference reader:
// offsets in order without gaps or overlap, sizes that match shapes, no duplicate names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "cli/byte_source.h"
#include "cli/tensor.h"

namespace saccade::cli {

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;         ///< "BF16", "F32", "U64", ...
  std::optional<DataType> dtype;  ///< empty for a type that Saccade does not compute with (U64)
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< bytes from the start of the data
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;                      ///< in the order of their data
  std::vector<std::pair<std::string, std::string>> metadata;  ///< "__metadata__"
  std::uint64_t data_offset = 0;

  const SafetensorsEntry* find(const std::string& name) const;
};

Expected<SafetensorsHeader> read_safetensors_header(const ByteSource& source);
/// `not_found` lists the names that the file has.
Expected<HostTensor> read_safetensors_tensor(const ByteSource& source, const SafetensorsHeader& header,
                                             const std::string& name);

struct NamedTensor {
  std::string name;
  const HostTensor* tensor;  ///< row-major
};
Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors);

}  // namespace saccade::cli
