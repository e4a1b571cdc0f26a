#include "tuner/table_span.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "tuner/call.h"

namespace saccade::tuner {
namespace {

expr::HostTable table_of(std::vector<std::int64_t> extents, std::vector<std::int64_t> strides) {
  expr::HostTable table;
  std::copy(extents.begin(), extents.end(), std::begin(table.extent));
  std::copy(strides.begin(), strides.end(), std::begin(table.stride));
  return table;
}

Expected<TableSpan> span_of(std::vector<std::int64_t> extents, std::vector<std::int64_t> strides) {
  const int rank = static_cast<int>(extents.size());
  return table_span(table_of(std::move(extents), std::move(strides)), {"bias", DataType::i32, rank});
}

void expect_span(const Expected<TableSpan>& span, std::int64_t lowest_bytes, std::int64_t bytes) {
  ASSERT_TRUE(span.ok()) << span.status().message();
  EXPECT_EQ(span->lowest_bytes, lowest_bytes);
  EXPECT_EQ(span->bytes, bytes);
}

TEST(TableSpan, IsFromTheLowestToPastTheHighestElement) {
  expect_span(span_of({4, 8}, {8, 1}), 0, 4 * 32);
  expect_span(span_of({4, 8}, {10, 1}), 0, 4 * 38);
  expect_span(span_of({4, 8}, {0, 1}), 0, 4 * 8);
  expect_span(span_of({4, 8}, {-8, 1}), -4 * 24, 4 * 32);
  expect_span(span_of({4, 8}, {-8, -1}), -4 * 31, 4 * 32);
  expect_span(span_of({4, 8}, {8, -1}), -4 * 7, 4 * 32);
  expect_span(span_of({1, 8}, {-1000, 1}), 0, 4 * 8);
}

TEST(TableSpan, OfAnEmptyTableIsNothing) {
  expect_span(span_of({0, 8}, {-8, 1}), 0, 0);
  expect_span(span_of({8, 0}, {std::numeric_limits<std::int64_t>::max(), 1}), 0, 0);
}

TEST(TableSpan, ThatNoMemoryHoldsIsAnErrorThatNamesTheTable) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min(),
                         kMost = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::int64_t> strides[] = {
      {kMost, 1}, {kLeast, 1}, {1, kMost / 2}, {std::int64_t{1} << 46, 1}, {-(std::int64_t{1} << 45), 1}};
  for (const std::vector<std::int64_t>& given : strides) {
    const Expected<TableSpan> span = span_of({4, 8}, given);
    ASSERT_FALSE(span.ok()) << given[0] << " " << given[1];
    EXPECT_EQ(span.status().code(), StatusCode::invalid_argument);
    EXPECT_NE(span.status().message().find("table \"bias\""), std::string::npos) << span.status().message();
  }
}

TEST(UploadBindings, CopiesATableOfWhichTheRowsRunBackwards) {
  const Expected<std::shared_ptr<const Device>> device = cpu_device();
  ASSERT_TRUE(device.ok()) << device.status().message();
  Problem problem;
  problem.declarations.tables = {{"bias", DataType::i32, 2}};
  std::vector<std::int32_t> memory(32);
  std::iota(memory.begin(), memory.end(), 0);
  expr::Bindings bindings;
  bindings.tables = {table_of({4, 8}, {-8, 1})};
  bindings.tables[0].data = &memory[24];
  const Expected<DeviceBindings> uploaded = upload_bindings(*device, problem, bindings, {});
  ASSERT_TRUE(uploaded.ok()) << uploaded.status().message();
  const TableArgument& argument = uploaded->tables[0];
  std::fill(memory.begin(), memory.end(), -1);
  for (std::int64_t row = 0; row < 4; ++row) {
    for (std::int64_t column = 0; column < 8; ++column) {
      const std::int64_t offset = row * argument.stride[0] + column * argument.stride[1];
      EXPECT_EQ(static_cast<const std::int32_t*>(argument.data)[offset], (3 - row) * 8 + column);
    }
  }
}

}  // namespace
}  // namespace saccade::tuner
