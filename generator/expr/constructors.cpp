#include <algorithm>
#include <cctype>
#include <charconv>

#include <fmt/format.h>

#include "generator/expr/program.h"

namespace saccade::expr::rules {
namespace {

bool is_integer_literal(std::string_view text) {
  long long value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

/// An argument as an operand: in parentheses unless it is a name or a number.
std::string operand(std::string_view text) {
  const bool word = std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
  });
  return word ? std::string(text) : fmt::format("({})", text);
}

/// `distance` (an integer expression) at most `bound`, where a negative bound means none. A named bound is asked at run
/// time.
std::string within(std::string_view distance, std::string_view bound) {
  if (bound.starts_with('-') && is_integer_literal(bound)) return "true";
  if (is_integer_literal(bound)) return fmt::format("{} <= {}", distance, bound);
  return fmt::format("({0} < 0 || {1} <= {0})", operand(bound), distance);
}

}  // namespace

std::string causal_top_left() { return "kv_idx <= q_idx"; }

std::string causal_bottom_right() { return "kv_idx <= q_idx + (len_kv - len_q)"; }

std::string window(std::string_view left, std::string_view right, bool bottom_right) {
  const std::string_view query = bottom_right ? "q_idx + (len_kv - len_q)" : "q_idx";
  const std::string before = within(fmt::format("{} - kv_idx", query), left);
  const std::string after = within(fmt::format("kv_idx - ({})", query), right);
  if (before == "true") return after;
  return after == "true" ? before : before + " && " + after;
}

std::string prefix(std::string_view length) { return fmt::format("kv_idx < {} || kv_idx <= q_idx", operand(length)); }

std::string chunked(std::string_view chunk) { return fmt::format("q_idx // {0} == kv_idx // {0}", operand(chunk)); }

std::string document(std::string_view table) { return fmt::format("{0}[b, q_idx] == {0}[b, kv_idx]", table); }

std::string alibi(std::string_view slopes, bool bottom_right) {
  const std::string_view shift = bottom_right ? " - (len_kv - len_q)" : "";
  return fmt::format("score + {}[h] * (kv_idx - q_idx{})", slopes, shift);
}

std::string softcap(std::string_view cap) { return fmt::format("{0} * tanh(score / {0})", operand(cap)); }

std::string bias(std::string_view table) { return fmt::format("score + {}[b, h, q_idx, kv_idx]", table); }

}  // namespace saccade::expr::rules
