// Any bytes: tensors that lie within them, or a reason.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "cli/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace saccade::cli;
  const auto source = open_memory("input.safetensors", std::as_bytes(std::span(data, size)));
  const auto header = read_safetensors_header(*source);
  if (!header.ok()) {
    if (header.status().message().empty()) std::abort();
    return 0;
  }
  std::uint64_t total = header->data_offset;
  for (const SafetensorsEntry& entry : header->entries) {
    const auto tensor = read_safetensors_tensor(*source, *header, entry.name);
    if (tensor.ok() != entry.dtype.has_value()) std::abort();
    total += entry.end - entry.begin;
  }
  if (total != size || read_safetensors_tensor(*source, *header, "\x01 no such name").ok()) std::abort();
  return 0;
}
