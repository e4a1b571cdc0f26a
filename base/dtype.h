// Element types of tensors and tables, with host conversions of the 16-bit floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace saccade {

/// The values are the C ABI's (`saccade_dtype`) and never change.
enum class DataType : std::uint8_t {
  f32 = 0,
  f16 = 1,
  bf16 = 2,
  e4m3 = 3,
  e5m2 = 4,
  f64 = 5,
  i8 = 6,
  i16 = 7,
  i32 = 8,
  i64 = 9,
  u8 = 10,
  u16 = 11,
  u32 = 12,
  boolean = 13,
};

std::string_view name_of(DataType type);                             ///< "bf16", "i32", "bool", ...
std::optional<DataType> data_type_from_name(std::string_view name);  ///< also "float16", "bfloat16", "fp16", ...
std::size_t size_of(DataType type);                                  ///< bytes of one element
bool is_float(DataType type);

float float_from_f16(std::uint16_t bits);
float float_from_bf16(std::uint16_t bits);
std::uint16_t f16_from_float(float value);   ///< round to nearest even
std::uint16_t bf16_from_float(float value);  ///< round to nearest even, NaN stays NaN
/// The same, rounded once: by way of float some values between two neighbours would be rounded twice, and wrong.
std::uint16_t f16_from_double(double value);
std::uint16_t bf16_from_double(double value);

/// Reads element `index` of an array of `type` as double (bool: 0 or 1).
double load_as_double(DataType type, const void* data, std::int64_t index);
/// Stores `value`, rounded to nearest even, as element `index` of an array of `type`.
void store_from_double(DataType type, void* data, std::int64_t index, double value);

}  // namespace saccade
