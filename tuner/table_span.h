// Which elements a table's extents and strides reach: what to copy, and where the first of them is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "generator/problem.h"

namespace saccade::tuner {

/// Strides may be negative: elements then lie below `HostTable::data`.
struct TableSpan {
  std::int64_t lowest_bytes = 0;  ///< offset of the lowest element from `data`; 0 or below
  std::int64_t bytes = 0;         ///< from the lowest element to past the highest; 0 when an extent is 0

  /// The lowest element of a table whose first is at `data`.
  const std::byte* lowest_of(const void* data) const { return static_cast<const std::byte*>(data) + lowest_bytes; }
  /// `data` of a copy whose lowest element is at `lowest`.
  const std::byte* data_of(const void* lowest) const { return static_cast<const std::byte*>(lowest) - lowest_bytes; }
};

/// invalid_argument when the span is more than a process can address.
Expected<TableSpan> table_span(const expr::HostTable& table, const expr::TableDeclaration& declaration);

}  // namespace saccade::tuner
