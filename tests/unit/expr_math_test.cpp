// The functions and table conversions that kernels call.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "base/dtype.h"
#include "saccade_templates/common/rules.h"

namespace saccade {
namespace {

/// Distance in units in the last place of f32, with subnormal results counted in the smallest ones.
double ulps(float actual, double exact) {
  const auto rounded = static_cast<float>(exact);
  if (std::isnan(rounded)) return std::isnan(actual) ? 0 : INFINITY;
  if (std::isinf(rounded) || std::isinf(actual)) return rounded == actual ? 0 : INFINITY;
  if (rounded == 0) return std::abs(actual) / 0x1p-149;
  const double spacing = std::max(std::ldexp(1.0, std::ilogb(rounded) - 23), 0x1p-149);
  return std::abs(actual - exact) / spacing;
}

void expect_within_two_ulps(const char* name, float (*function)(float), double (*reference)(double), float lowest,
                            float highest) {
  double worst = 0;
  float at = 0;
  // Every 997th float of the range.
  for (std::int64_t bits = 0; bits <= 0xffffffffLL; bits += 997) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isnan(x) || x < lowest || x > highest) continue;
    const double error = ulps(function(x), reference(x));
    if (error > worst) {
      worst = error;
      at = x;
    }
  }
  EXPECT_LE(worst, 2.0) << name << " at " << at << " gives " << function(at) << " for " << reference(at);
}

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(KernelMath, IsWithinTwoUnitsInTheLastPlace) {
  expect_within_two_ulps("exp", math::exp, std::exp, -kInf, kInf);
  expect_within_two_ulps("exp2", math::exp2, std::exp2, -kInf, kInf);
  expect_within_two_ulps("tanh", math::tanh, std::tanh, -kInf, kInf);
  expect_within_two_ulps("sqrt", math::sqrt, std::sqrt, -kInf, kInf);
  expect_within_two_ulps("floor", math::floor, std::floor, -kInf, kInf);
  expect_within_two_ulps("log", math::log, std::log, -kInf, kInf);
  // Near 1 the result is small and an absolute error of half an ulp of 1 remains: see below.
  expect_within_two_ulps("log2", math::log2, std::log2, -kInf, 0.7f);
  expect_within_two_ulps("log2", math::log2, std::log2, 1.42f, kInf);
  for (float x = 0.7f; x < 1.42f; x += 1e-6f)
    ASSERT_NEAR(math::log2(x), std::log2(static_cast<double>(x)), 1.2e-7) << x;
}

TEST(KernelMath, HasTheRightEdges) {
  for (const auto function : {math::exp, math::exp2, math::log, math::log2, math::tanh, math::sqrt, math::floor})
    EXPECT_TRUE(std::isnan(function(kNan)));
  EXPECT_EQ(math::exp(-kInf), 0);
  EXPECT_EQ(math::exp(kInf), kInf);
  EXPECT_EQ(math::exp2(-kInf), 0);
  EXPECT_EQ(math::exp2(kInf), kInf);
  EXPECT_EQ(math::exp2(-149), 0x1p-149f);
  EXPECT_EQ(math::exp2(127), 0x1p127f);
  EXPECT_EQ(math::log(0.0f), -kInf);
  EXPECT_EQ(math::log2(0.0f), -kInf);
  EXPECT_EQ(math::log(kInf), kInf);
  EXPECT_TRUE(std::isnan(math::log(-1.0f)));
  EXPECT_EQ(math::tanh(kInf), 1);
  EXPECT_EQ(math::tanh(-kInf), -1);
  EXPECT_EQ(math::truncate(kNan), 0);
  EXPECT_EQ(math::truncate(1e20f), 2147483647);
  EXPECT_EQ(math::truncate(-1e20f), -2147483647 - 1);
  EXPECT_EQ(math::truncate(-1.9f), -1);
}

TEST(KernelMath, AProductWithTheReciprocalIsWithinTwoUnitsOfTheQuotient) {
  const float divisors[] = {3.0f,     30.0f,  -50.0f,    0.1f,        1e-30f,      0x1p126f, 0x1.8p126f,
                            0x1p127f, -3e38f, 0x1p-126f, 0x1.9p-127f, 0x1.4p-140f, 0x1p-149f};
  for (const float divisor : divisors) {
    double worst = 0;
    for (std::int64_t bits = 0; bits <= 0xffffffffLL; bits += 99991) {
      const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      // At the edge of overflow the two may fall on different sides.
      const double exact = static_cast<double>(x) / divisor;
      if (std::isnan(x) || std::abs(std::abs(exact) / 0x1p128 - 1) < 1e-6) continue;
      worst = std::max(worst, ulps(math::multiply_by_reciprocal(x, divisor), exact));
    }
    EXPECT_LE(worst, 2.0) << divisor;
  }
}

TEST(KernelMath, AProductWithTheReciprocalHasTheEdgesOfTheQuotient) {
  const float values[] = {0.0f, -0.0f, 1.0f, -1.0f, 0x1p-149f, 3e38f, kInf, -kInf, kNan};
  for (const float x : values)
    for (const float divisor : {0.0f, -0.0f, kInf, -kInf, kNan, 1.0f}) {
      const float expected = x / divisor, actual = math::multiply_by_reciprocal(x, divisor);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(actual)) << x << " / " << divisor;
      } else {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(actual), std::bit_cast<std::uint32_t>(expected))
            << x << " / " << divisor;
      }
    }
}

TEST(KernelMath, TheQuotientForTanhIsWithinTwoToTheMinusTwenty) {
  double worst = 0;
  for (std::int64_t bits = 0; bits < 0x7f800000LL; bits += 997) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (x < 0x1p-100f) continue;
    const math::TanhQuotient quotient = math::tanh_quotient(std::min(x, math::kTanhEnd));
    const double value = quotient.numerator * (1.0f / quotient.denominator);
    worst = std::max(worst, std::abs(value / std::tanh(static_cast<double>(x)) - 1));
  }
  EXPECT_LE(worst, 0x1p-20);
}

template <class T, class Bits>
void expect_same_conversion(DataType type, unsigned patterns) {
  for (unsigned bits = 0; bits < patterns; ++bits) {
    const auto stored = static_cast<Bits>(bits);
    const double expected = load_as_double(type, &stored, 0);
    const double actual = TableElement<T>::value(std::bit_cast<T>(stored));
    ASSERT_TRUE(actual == expected || (std::isnan(actual) && std::isnan(expected)))
        << name_of(type) << " " << bits << ": " << actual << " for " << expected;
  }
}

TEST(TableReads, ConvertEverySmallFloatExactly) {
  expect_same_conversion<element::f16, std::uint16_t>(DataType::f16, 65536);
  expect_same_conversion<element::bf16, std::uint16_t>(DataType::bf16, 65536);
  expect_same_conversion<element::e4m3, std::uint8_t>(DataType::e4m3, 256);
  expect_same_conversion<element::e5m2, std::uint8_t>(DataType::e5m2, 256);
  expect_same_conversion<element::boolean, std::uint8_t>(DataType::boolean, 256);
}

TEST(TableReads, TouchNoMemoryOutsideTheExtents) {
  KernelParams p{};
  p.tables[0].data = nullptr;  // any read would fault
  p.tables[0].extent[0] = 0;
  p.tables[0].extent[1] = 5;
  EXPECT_EQ((table_load<int, 2>(p, 0, 0, 0)), 0);
  p.tables[0].extent[0] = 5;
  for (const long long index : {-1LL, 5LL, 1LL << 40, kUnboundedAbove, kUnboundedBelow}) {
    EXPECT_EQ((table_load<int, 2>(p, 0, index, 0)), 0);
    EXPECT_EQ((table_load<float, 2>(p, 0, 0, index)), 0);
    const IntInterval range = table_range<int, 2, 1>(p, 0, index, IntInterval(0, 4));
    EXPECT_EQ(range.lo, 0);
    EXPECT_EQ(range.hi, 0);
  }
  const IntInterval beyond = table_range<int, 2, 1>(p, 0, 0, IntInterval(5, kUnboundedAbove));
  EXPECT_EQ(beyond.lo, 0);
  EXPECT_EQ(beyond.hi, 0);
}

TEST(TableReads, FindTheRangeAlongAnyDimension) {
  const std::vector<short> data = {3, 1, 4, 1, 5, 9, 2, 6};
  KernelParams p{};
  p.tables[2] = {data.data(), {2, 4}, {4, 1}};
  const IntInterval row = table_range<short, 2, 1>(p, 2, 1, IntInterval(0, 2));
  EXPECT_EQ(row.lo, 2);
  EXPECT_EQ(row.hi, 9);
  const IntInterval column = table_range<short, 2, 0>(p, 2, IntInterval(0, 1), 3);
  EXPECT_EQ(column.lo, 1);
  EXPECT_EQ(column.hi, 6);
  const IntInterval past_the_end = table_range<short, 2, 1>(p, 2, 1, IntInterval(2, 7));
  EXPECT_EQ(past_the_end.lo, 0);
  EXPECT_EQ(past_the_end.hi, 6);
}

/// The extremes that `lanes` lanes find together.
template <class T, int lanes>
void expect_extremes_of_runs() {
  alignas(16) T aligned[400];
  for (int i = 0; i < 400; ++i) aligned[i] = static_cast<T>((i * 37) % 101);
  for (int first = 0; first < 20; ++first)
    for (const int count : {1, 2, 3, 7, 15, 16, 17, 31, 64, 65, 96, 128, 131})
      for (const int stride : {0, 1, 2}) {
        T lo = aligned[first], hi = lo;
        for (int i = 0; i < count; ++i) {
          lo = std::min(lo, aligned[first + i * stride]);
          hi = std::max(hi, aligned[first + i * stride]);
        }
        Extremes<typename TableElement<T>::Value> seen;
        for (int lane = 0; lane < lanes; ++lane) {
          Extremes<typename TableElement<T>::Value> of_lane;  // of no element where there are more lanes than elements
          add_run<T, lanes>(of_lane, aligned + first, count, stride, lane);
          seen.merge(of_lane);
        }
        ASSERT_EQ(seen.lo, lo) << sizeof(T) << " bytes, " << first << " + " << stride << " * " << count;
        ASSERT_EQ(seen.hi, hi) << sizeof(T) << " bytes, " << first << " + " << stride << " * " << count;
      }
}

TEST(TableReads, FindTheExtremesOfARunWhereverItBegins) {
  expect_extremes_of_runs<signed char, 1>();
  expect_extremes_of_runs<signed char, 32>();
  expect_extremes_of_runs<short, 8>();
  expect_extremes_of_runs<int, 1>();
  expect_extremes_of_runs<int, 8>();
  expect_extremes_of_runs<int, 32>();
  expect_extremes_of_runs<float, 8>();
  expect_extremes_of_runs<long long, 32>();
}

/// Every interval operation contains every result of its elements.
TEST(Intervals, ContainTheResultsOfTheirElements) {
  const auto check = [](const char* name, IntInterval r, long long value) {
    ASSERT_TRUE(r.lo <= value && value <= r.hi) << name << " gives " << value << " outside " << r.lo << ".." << r.hi;
  };
  for (int a_lo = -5; a_lo <= 4; ++a_lo)
    for (int a_hi = a_lo; a_hi <= 4; a_hi += 3)
      for (int b_lo = -4; b_lo <= 4; ++b_lo)
        for (int b_hi = b_lo; b_hi <= 4; b_hi += 2) {
          const IntInterval a(a_lo, a_hi), b(b_lo, b_hi);
          for (int x = a_lo; x <= a_hi; ++x)
            for (int y = b_lo; y <= b_hi; ++y) {
              check("+", a + b, x + y);
              check("-", a - b, x - y);
              check("wrap_sum", wrap_sum(a, b), x + y);
              check("*", wrap_multiply(a, b), x * y);
              check("//", floor_divide<int>(a, b), floor_divide(x, y));
              check("// point", floor_divide<int>(a, y), floor_divide(x, y));
              check("%", floor_modulo<int>(a, b), floor_modulo(x, y));
              check("% point", floor_modulo<int>(a, IntInterval(y)), floor_modulo(x, y));
              check("min", minimum(a, b), std::min(x, y));
              check("max", maximum(a, b), std::max(x, y));
              check("abs", absolute<int>(a), std::abs(x));
              check("solve_sum", solve_sum(a + b, b), x);
              check("solve_product", solve_product(wrap_multiply(a, IntInterval(y)), y), x);
              check("solve_quotient", solve_quotient(floor_divide<int>(IntInterval(x), y), y), x);
              check("solve_absolute", solve_absolute(std::abs(x)), x);
              check("solve_minimum", solve_minimum(std::min(x, y), y), x);
              check("solve_maximum", solve_maximum(std::max(x, y), y), x);
            }
        }
}

TEST(Intervals, SolveAtTheEdgesWithoutOverflow) {
  const IntInterval all = anywhere();
  for (const IntInterval target :
       {all, IntInterval(kUnboundedBelow), IntInterval(kUnboundedAbove), IntInterval(kUnboundedBelow, 0), nowhere()}) {
    for (const long long c : {kUnboundedBelow, kUnboundedAbove, -1LL, 0LL, 1LL, 7LL}) {
      for (const IntInterval result :
           {solve_sum(target, c), solve_product(target, c), solve_quotient(target, c), solve_absolute(target),
            solve_minimum(target, c), solve_maximum(target, c), below(target), above(target), at_most(target),
            at_least(target), unless_wrapped<int>(target, target), intersect(target, IntInterval(c)),
            hull(target, c)}) {
        const KvRange range = clamp_kv(result, 2147483647);
        EXPECT_LE(0, range.begin);
        EXPECT_LE(range.begin, range.end);
      }
    }
  }
}

TEST(Intervals, OfFloatsContainTheResultsOfTheirElements) {
  const float values[] = {-kInf, -1e30f, -3.5f, -1.0f, -0.25f, 0.0f, 0.5f, 1.0f, 2.0f, 7.25f, 1e30f, kInf};
  const auto check = [](const char* name, FloatInterval r, float value, float x, float y) {
    const bool contained = std::isnan(value) ? r.nan : r.lo <= value && value <= r.hi;
    ASSERT_TRUE(contained) << name << "(" << x << ", " << y << ") is " << value << ", outside " << r.lo << ".." << r.hi;
  };
  for (std::size_t i = 0; i < std::size(values); ++i)
    for (std::size_t j = i; j < std::size(values); ++j)
      for (std::size_t k = 0; k < std::size(values); ++k)
        for (std::size_t l = k; l < std::size(values); ++l) {
          const FloatInterval a(values[i], values[j], false), b(values[k], values[l], false);
          for (std::size_t m = i; m <= j; ++m)
            for (std::size_t n = k; n <= l; ++n) {
              const float x = values[m], y = values[n];
              check("+", add(a, b), x + y, x, y);
              check("-", subtract(a, b), x - y, x, y);
              check("*", multiply(a, b), x * y, x, y);
              check("/", divide(a, b), x / y, x, y);
              check("min", minimum(a, b), minimum(x, y), x, y);
              check("max", maximum(a, b), maximum(x, y), x, y);
              check("abs", absolute(a), std::fabs(x), x, y);
              check("exp", exp(a), std::exp(x), x, y);
              check("log", log(a), std::log(x), x, y);
              check("log2", log2(a), std::log2(x), x, y);
              check("sqrt", sqrt(a), std::sqrt(x), x, y);
              check("tanh", tanh(a), std::tanh(x), x, y);
              check("floor", floor(a), std::floor(x), x, y);
            }
        }
}

}  // namespace
}  // namespace saccade
