// Any bytes: a tensor that fits them, or a reason. What is accepted must survive a change of order.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>

#include "cli/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace saccade::cli;
  auto tensor = read_npy(*open_memory("input.npy", std::as_bytes(std::span(data, size))));
  if (!tensor.ok()) {
    if (tensor.status().message().empty()) std::abort();
    return 0;
  }
  if (tensor->data.size() > size) std::abort();
  const std::int64_t elements = tensor->elements();
  const auto rows = row_major(std::move(tensor).value());
  if (!rows.ok() || rows->elements() != elements) std::abort();
  return 0;
}
