#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace saccade {
namespace {

TEST(DataType, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(DataType::boolean); ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(data_type_from_name(name_of(type)), type);
  }
  EXPECT_EQ(data_type_from_name("bfloat16"), DataType::bf16);
  EXPECT_FALSE(data_type_from_name("f17").has_value());
}

TEST(DataType, EverySixteenBitPatternRoundTrips) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    if (!std::isnan(float_from_bf16(b))) {
      EXPECT_EQ(bf16_from_float(float_from_bf16(b)), b);
    }
    if (!std::isnan(float_from_f16(b))) {
      EXPECT_EQ(f16_from_float(float_from_f16(b)), b);
    }
  }
}

TEST(DataType, SixteenBitRoundingMatchesTheCompiler) {
  std::uint32_t state = 1;
  for (int i = 0; i < 200000; ++i) {
    state = state * 1664525u + 1013904223u;
    float value;
    static_assert(sizeof(value) == sizeof(state));
    __builtin_memcpy(&value, &state, 4);
    if (std::isnan(value)) continue;
    const auto half = static_cast<_Float16>(value);
    std::uint16_t expected;
    __builtin_memcpy(&expected, &half, 2);
    ASSERT_EQ(f16_from_float(value), expected) << value;
  }
}

/// The double next to the midpoint of two neighbours: by way of float it would become the midpoint, and go to the even one.
TEST(DataType, ADoubleIsRoundedOnce) {
  for (const DataType type : {DataType::f16, DataType::bf16}) {
    // From the smallest subnormal to the last pair of finite numbers.
    const std::uint16_t highest = type == DataType::f16 ? 0x7bff : 0x7f7f;
    for (std::uint16_t bits = 0; bits < highest; ++bits) {
      const auto next = static_cast<std::uint16_t>(bits + 1);
      const double low = load_as_double(type, &bits, 0), high = load_as_double(type, &next, 0);
      const double middle = (low + high) / 2;
      const auto even = static_cast<std::uint16_t>(bits % 2 == 0 ? bits : next);
      for (const double sign : {1.0, -1.0}) {
        const auto expect = [&](double value, std::uint16_t expected) {
          std::uint16_t stored = 0;
          store_from_double(type, &stored, 0, sign * value);
          ASSERT_EQ(stored, sign < 0 ? expected | 0x8000 : expected) << name_of(type) << " of " << sign * value;
        };
        expect(middle, even);
        expect(std::nextafter(middle, 0), bits);
        expect(std::nextafter(middle, INFINITY), next);
      }
    }
  }
}

TEST(DataType, SixteenBitOverflowOfADoubleIsInfinity) {
  const struct {
    DataType type;
    double halfway;  ///< from the largest finite number to what would be the next
    std::uint16_t largest, infinity;
  } cases[] = {{DataType::f16, 65520, 0x7bff, 0x7c00}, {DataType::bf16, 0x1.ffp127, 0x7f7f, 0x7f80}};
  for (const auto& c : cases) {
    std::uint16_t stored = 0;
    store_from_double(c.type, &stored, 0, c.halfway);
    EXPECT_EQ(stored, c.infinity);
    store_from_double(c.type, &stored, 0, 1e300);
    EXPECT_EQ(stored, c.infinity);
    store_from_double(c.type, &stored, 0, std::nextafter(c.halfway, 0));
    EXPECT_EQ(stored, c.largest);
    store_from_double(c.type, &stored, 0, NAN);
    EXPECT_TRUE(std::isnan(load_as_double(c.type, &stored, 0)));
  }
}

TEST(DataType, EveryFp8PatternRoundTrips) {
  for (const DataType type : {DataType::e4m3, DataType::e5m2})
    for (int bits = 0; bits < 256; ++bits) {
      const auto in = static_cast<std::uint8_t>(bits);
      const double value = load_as_double(type, &in, 0);
      if (std::isnan(value)) continue;
      std::uint8_t out = 0;
      store_from_double(type, &out, 0, value);
      EXPECT_EQ(out, in) << name_of(type);
    }
}

TEST(DataType, Fp8OverflowFollowsTheFormat) {
  std::uint8_t byte = 0;
  store_from_double(DataType::e4m3, &byte, 0, 1e6);
  EXPECT_TRUE(std::isnan(load_as_double(DataType::e4m3, &byte, 0)));
  store_from_double(DataType::e5m2, &byte, 0, -1e6);
  EXPECT_EQ(load_as_double(DataType::e5m2, &byte, 0), -INFINITY);
}

}  // namespace
}  // namespace saccade
