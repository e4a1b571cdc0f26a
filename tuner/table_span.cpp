#include "tuner/table_span.h"

#include <fmt/format.h>

namespace saccade::tuner {
namespace {

/// User space of x86-64 and of AArch64 with 48-bit addresses ends here.
constexpr std::int64_t kAddressableBytes = std::int64_t{1} << 48;

}  // namespace

Expected<TableSpan> table_span(const expr::HostTable& table, const expr::TableDeclaration& declaration) {
  for (int d = 0; d < declaration.rank; ++d) {
    if (table.extent[d] <= 0) return TableSpan{};
  }
  std::int64_t lowest = 0, highest = 0;
  for (int d = 0; d < declaration.rank; ++d) {
    std::int64_t reach = 0;
    std::int64_t& end = table.stride[d] < 0 ? lowest : highest;
    // Ends are kept addressable, so that the sums and the product below cannot overflow.
    if (__builtin_mul_overflow(table.extent[d] - 1, table.stride[d], &reach) || reach > kAddressableBytes ||
        reach < -kAddressableBytes) {
      return Status::invalid_argument(
          fmt::format("table \"{}\": extent[{}] is {} and stride[{}] is {}, which no memory holds", declaration.name, d,
                      table.extent[d], d, table.stride[d]));
    }
    end += reach;
  }
  const auto size = static_cast<std::int64_t>(size_of(declaration.dtype));
  const TableSpan span{lowest * size, (highest - lowest + 1) * size};
  if (span.bytes > kAddressableBytes) {
    return Status::invalid_argument(fmt::format(
        "table \"{}\": its extents and strides span {} bytes, which no memory holds", declaration.name, span.bytes));
  }
  return span;
}

}  // namespace saccade::tuner
