#include "base/printable.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

namespace saccade {
namespace {

constexpr std::size_t kMaxNameBytes = 120;

/// One code point and its length; no code point for a byte that begins none.
struct Decoded {
  std::size_t bytes = 1;
  std::uint32_t code_point = 0;
  bool valid = false;
};

Decoded decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {1, first, true};
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || bytes > text.size()) return {};
  std::uint32_t code_point = first & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code_point = code_point << 6 | (byte(i) & 0x3f);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code_point >= 0xd800 && code_point < 0xe000;
  return {bytes, code_point, code_point >= kLeast[bytes] && code_point <= 0x10ffff && !surrogate};
}

/// C0, DEL and C1; Unicode's line separators and its characters that change the direction of what follows (UAX 9).
bool is_obeyed(std::uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string result;
  while (!text.empty()) {
    const Decoded decoded = decode(text);
    const std::size_t bytes = decoded.valid ? decoded.bytes : 1;
    const bool shown = decoded.valid && !is_obeyed(decoded.code_point);
    for (const char c : text.substr(0, bytes))
      result += shown || kept.find(c) != std::string_view::npos
                    ? std::string(1, c)
                    : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    text.remove_prefix(bytes);
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, "\n\t"); }

std::string printable_name(std::string_view name) {
  if (name.size() <= kMaxNameBytes) return escaped(name, {});
  return escaped(name.substr(0, kMaxNameBytes), {}) + "...";
}

}  // namespace saccade
