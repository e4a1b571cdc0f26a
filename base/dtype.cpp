#include "base/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

namespace saccade {
namespace {

struct Row {
  DataType type;
  std::string_view name;
  std::size_t size;
  bool floating;
};
constexpr std::array kRows = {
    Row{DataType::f32, "f32", 4, true},   Row{DataType::f16, "f16", 2, true},
    Row{DataType::bf16, "bf16", 2, true}, Row{DataType::e4m3, "e4m3", 1, true},
    Row{DataType::e5m2, "e5m2", 1, true}, Row{DataType::f64, "f64", 8, true},
    Row{DataType::i8, "i8", 1, false},    Row{DataType::i16, "i16", 2, false},
    Row{DataType::i32, "i32", 4, false},  Row{DataType::i64, "i64", 8, false},
    Row{DataType::u8, "u8", 1, false},    Row{DataType::u16, "u16", 2, false},
    Row{DataType::u32, "u32", 4, false},  Row{DataType::boolean, "bool", 1, false},
};
const Row& row(DataType type) { return kRows[static_cast<std::size_t>(type)]; }

constexpr std::array<std::pair<std::string_view, DataType>, 18> kAliases = {{
    {"float32", DataType::f32},
    {"fp32", DataType::f32},
    {"float", DataType::f32},
    {"float16", DataType::f16},
    {"fp16", DataType::f16},
    {"half", DataType::f16},
    {"bfloat16", DataType::bf16},
    {"float64", DataType::f64},
    {"fp64", DataType::f64},
    {"int8", DataType::i8},
    {"int16", DataType::i16},
    {"int32", DataType::i32},
    {"int64", DataType::i64},
    {"uint8", DataType::u8},
    {"uint16", DataType::u16},
    {"uint32", DataType::u32},
    {"float8_e4m3fn", DataType::e4m3},
    {"float8_e5m2", DataType::e5m2},
}};

/// Decodes a small IEEE-like float; `no_inf` is the e4m3fn rule (only S.1111.111 is NaN).
double decode_small(unsigned bits, int exponent_bits, int mantissa_bits, bool no_inf) {
  const unsigned mantissa = bits & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>((bits >> mantissa_bits) & ((1u << exponent_bits) - 1));
  const double sign = (bits >> (exponent_bits + mantissa_bits)) & 1 ? -1.0 : 1.0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int top = (1 << exponent_bits) - 1;
  if (exponent == top && no_inf && mantissa == (1u << mantissa_bits) - 1) return NAN;
  if (exponent == top && !no_inf) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1u << mantissa_bits), exponent - bias - mantissa_bits);
}

/// Rounds a finite double to `mantissa_bits` with minimum exponent `min_exponent`, to nearest even.
double round_to(double value, int mantissa_bits, int min_exponent) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int quantum = std::max(exponent - 1, min_exponent) - mantissa_bits;
  return std::ldexp(std::nearbyint(std::ldexp(value, -quantum)), quantum);
}

/// Toward zero, with the last bit set when that lost anything: to nearest from there to a shorter type gives what one
/// rounding of `value` would (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
float rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (std::isnan(value) || nearest == value) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // one step towards zero, from infinity too
  return std::bit_cast<float>(bits | 1);
}

template <class T>
double load(const void* data, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return static_cast<double>(value);
}
template <class T>
void store(void* data, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

std::uint8_t encode_fp8(double value, int exponent_bits, int mantissa_bits, double largest, bool no_inf) {
  const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double magnitude = round_to(std::fabs(value), mantissa_bits, 1 - bias);
  if (magnitude > largest) return sign | (no_inf ? 0x7f : 0x7c);
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, 1 - bias);
  const auto scaled = static_cast<unsigned>(std::ldexp(magnitude, mantissa_bits - exponent));
  const unsigned implicit = 1u << mantissa_bits;
  if (scaled < implicit) return sign | static_cast<std::uint8_t>(scaled);
  return sign |
         static_cast<std::uint8_t>((static_cast<unsigned>(exponent + bias) << mantissa_bits) + scaled - implicit);
}

}  // namespace

std::string_view name_of(DataType type) { return row(type).name; }
std::size_t size_of(DataType type) { return row(type).size; }
bool is_float(DataType type) { return row(type).floating; }

std::optional<DataType> data_type_from_name(std::string_view name) {
  for (const Row& r : kRows)
    if (r.name == name) return r.type;
  for (const auto& [alias, type] : kAliases)
    if (alias == name) return type;
  return std::nullopt;
}

float float_from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
float float_from_f16(std::uint16_t bits) { return static_cast<float>(decode_small(bits, 5, 10, false)); }

std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

std::uint16_t f16_from_float(float value) { return f16_from_double(value); }

std::uint16_t f16_from_double(double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return sign | 0x7e00;
  const double magnitude = round_to(std::fabs(value), 10, -14);
  if (magnitude > 65504) return sign | 0x7c00;
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, -14);
  const auto scaled = static_cast<unsigned>(std::ldexp(magnitude, 10 - exponent));
  if (scaled < 1024) return static_cast<std::uint16_t>(sign | scaled);
  return static_cast<std::uint16_t>(sign | ((static_cast<unsigned>(exponent + 15) << 10) + scaled - 1024));
}

std::uint16_t bf16_from_double(double value) { return bf16_from_float(rounded_to_odd(value)); }

double load_as_double(DataType type, const void* data, std::int64_t index) {
  switch (type) {
    case DataType::f32: return load<float>(data, index);
    case DataType::f64: return load<double>(data, index);
    case DataType::f16: return float_from_f16(static_cast<std::uint16_t>(load<std::uint16_t>(data, index)));
    case DataType::bf16: return float_from_bf16(static_cast<std::uint16_t>(load<std::uint16_t>(data, index)));
    case DataType::e4m3: return decode_small(static_cast<unsigned>(load<std::uint8_t>(data, index)), 4, 3, true);
    case DataType::e5m2: return decode_small(static_cast<unsigned>(load<std::uint8_t>(data, index)), 5, 2, false);
    case DataType::i8: return load<std::int8_t>(data, index);
    case DataType::i16: return load<std::int16_t>(data, index);
    case DataType::i32: return load<std::int32_t>(data, index);
    case DataType::i64: return load<std::int64_t>(data, index);
    case DataType::u8: return load<std::uint8_t>(data, index);
    case DataType::u16: return load<std::uint16_t>(data, index);
    case DataType::u32: return load<std::uint32_t>(data, index);
    case DataType::boolean: return load<std::uint8_t>(data, index) != 0 ? 1 : 0;
  }
  return NAN;
}

void store_from_double(DataType type, void* data, std::int64_t index, double value) {
  switch (type) {
    case DataType::f32: return store(data, index, static_cast<float>(value));
    case DataType::f64: return store(data, index, value);
    case DataType::f16: return store(data, index, f16_from_double(value));
    case DataType::bf16: return store(data, index, bf16_from_double(value));
    case DataType::e4m3: return store(data, index, encode_fp8(value, 4, 3, 448, true));
    case DataType::e5m2: return store(data, index, encode_fp8(value, 5, 2, 57344, false));
    case DataType::i8: return store(data, index, static_cast<std::int8_t>(value));
    case DataType::i16: return store(data, index, static_cast<std::int16_t>(value));
    case DataType::i32: return store(data, index, static_cast<std::int32_t>(value));
    case DataType::i64: return store(data, index, static_cast<std::int64_t>(value));
    case DataType::u8: return store(data, index, static_cast<std::uint8_t>(value));
    case DataType::u16: return store(data, index, static_cast<std::uint16_t>(value));
    case DataType::u32: return store(data, index, static_cast<std::uint32_t>(value));
    case DataType::boolean: return store(data, index, static_cast<std::uint8_t>(value != 0));
  }
}

}  // namespace saccade
