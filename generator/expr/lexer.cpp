#include "generator/expr/lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace saccade::expr {
namespace {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
constexpr bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Longest first.
constexpr std::string_view kSymbols[] = {"==", "!=", "<=", ">=", "&&", "||", "//", "<", ">", "!", "+",
                                         "-",  "*",  "/",  "%",  "?",  ":",  "(",  ")", "[", "]", ","};

std::string unexpected(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (c == '=') return "'=' is not an operator; use '==' to compare";
  if (c == '&') return "'&' is not an operator; use '&&'";
  if (c == '|') return "'|' is not an operator; use '||'";
  if (byte >= 0x20 && byte < 0x7f) return fmt::format("unexpected character '{}'", c);
  return fmt::format("unexpected byte 0x{:02x}", byte);
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Expected<std::vector<Token>> run() {
    std::vector<Token> tokens;
    for (;;) {
      while (at_ < source_.size() && is_space(source_[at_])) ++at_;
      Token token;
      token.offset = at_;
      if (tokens.size() >= kMaxTokens) return error_at(source_, at_, fmt::format("more than {} tokens", kMaxTokens));
      if (at_ == source_.size()) {
        tokens.push_back(token);
        return tokens;
      }
      SACCADE_TRY(next(token));
      tokens.push_back(token);
    }
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  Status next(Token& token) {
    if (is_digit(peek()) || (peek() == '.' && is_digit(peek(1)))) return number(token);
    if (is_letter(peek())) {
      while (is_letter(peek()) || is_digit(peek())) ++at_;
      token.kind = Token::Kind::name;
      token.text = source_.substr(token.offset, at_ - token.offset);
      return {};
    }
    for (const std::string_view symbol : kSymbols) {
      if (source_.substr(at_, symbol.size()) != symbol) continue;
      at_ += symbol.size();
      token.kind = Token::Kind::symbol;
      token.text = symbol;
      return {};
    }
    return error_at(source_, at_, unexpected(peek()));
  }

  Status number(Token& token) {
    bool real = false;
    while (is_digit(peek())) ++at_;
    if (peek() == '.') {
      real = true;
      do ++at_;
      while (is_digit(peek()));
    }
    if (peek() == 'e' || peek() == 'E') {
      const std::size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
      if (is_digit(peek(1 + sign))) {
        real = true;
        at_ += 1 + sign;
        while (is_digit(peek())) ++at_;
      }
    }
    if (is_letter(peek()) || peek() == '.') return error_at(source_, at_, "a number cannot be followed by this");
    token.text = source_.substr(token.offset, at_ - token.offset);
    return real ? parse_real(token) : parse_integer(token);
  }

  Status parse_real(Token& token) const {
    token.kind = Token::Kind::real;
    const char* end = token.text.data() + token.text.size();
    double value = 0;
    const auto result = std::from_chars(token.text.data(), end, value);
    // from_chars leaves the value alone when it is out of range, too large or too small.
    const auto narrow = std::from_chars(token.text.data(), end, token.real);
    const bool tiny = narrow.ec == std::errc::result_out_of_range && std::fabs(value) < 1;
    if (tiny) token.real = 0;
    if (result.ec != std::errc() || (narrow.ec != std::errc() && !tiny) || !std::isfinite(token.real)) {
      return error_at(source_, token.offset, "this number does not fit f32");
    }
    return {};
  }

  Status parse_integer(Token& token) const {
    token.kind = Token::Kind::integer;
    const auto result = std::from_chars(token.text.data(), token.text.data() + token.text.size(), token.integer);
    if (result.ec != std::errc() || token.integer > std::uint64_t{1} << 63) {
      return error_at(source_, token.offset, "this integer does not fit 64 bits");
    }
    return {};
  }

  std::string_view source_;
  std::size_t at_ = 0;
};

}  // namespace

Status error_at(std::string_view source, std::size_t offset, std::string_view message) {
  offset = std::min(offset, source.size());
  const std::string_view before = source.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const std::size_t stop = std::min(source.find('\n', start), source.size());
  // Long lines are cut to a window around the place; bytes that a terminal could act on are shown as '?'.
  constexpr std::size_t kBefore = 60, kAfter = 40;
  const std::size_t first = offset - start > kBefore ? offset - kBefore : start;
  std::string shown(source.substr(first, std::min(stop, offset + kAfter) - first));
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = c == '\t' ? ' ' : '?';
  return Status::invalid_argument(fmt::format("line {}, column {}: {}\n  {}\n  {}^", line, offset - start + 1, message,
                                              shown, std::string(offset - first, ' ')));
}

Expected<std::vector<Token>> tokenize(std::string_view source) {
  if (source.size() > kMaxTextBytes) {
    return Status::invalid_argument(
        fmt::format("the program has {} bytes; at most {} are allowed", source.size(), kMaxTextBytes));
  }
  return Lexer(source).run();
}

}  // namespace saccade::expr
