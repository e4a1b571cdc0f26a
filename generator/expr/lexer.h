// Program text to tokens, and errors that point into the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace saccade::expr {

inline constexpr std::size_t kMaxTextBytes = 64 * 1024;
inline constexpr std::size_t kMaxTokens = 8192;

struct Token {
  enum class Kind : std::uint8_t { end, name, integer, real, symbol };
  Kind kind = Kind::end;
  std::size_t offset = 0;
  std::string_view text;
  std::uint64_t integer = 0;  ///< magnitude, at most 2^63
  float real = 0;
};

/// invalid_argument: "line 1, column 5: <message>", the source line and a caret below the place.
Status error_at(std::string_view source, std::size_t offset, std::string_view message);

/// The tokens of `source`, which must outlive them; the last one has kind `end`.
Expected<std::vector<Token>> tokenize(std::string_view source);

}  // namespace saccade::expr
