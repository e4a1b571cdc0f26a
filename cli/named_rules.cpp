#include "cli/named_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <optional>

#include "generator/expr/program.h"

namespace saccade::cli {
namespace {

struct NamedRule {
  std::string_view name;
  std::size_t arguments;
  std::string_view usage;
  std::string (*text)(const std::vector<std::string>& arguments);
};

using Arguments = std::vector<std::string>;
namespace rules = expr::rules;

const NamedRule kMasks[] = {
    {"full", 0, "full                 every key", [](const Arguments&) { return std::string("true"); }},
    {"causal-tl", 0, "causal-tl            kv_idx <= q_idx", [](const Arguments&) { return rules::causal_top_left(); }},
    {"causal-br", 0, "causal-br            the last query sees every key",
     [](const Arguments&) { return rules::causal_bottom_right(); }},
    {"window", 2, "window:LEFT,RIGHT    i-LEFT .. i+RIGHT inclusive, -1 is unbounded",
     [](const Arguments& a) { return rules::window(a[0], a[1], false); }},
    {"window-br", 2, "window-br:LEFT,RIGHT the same, aligned to the last key",
     [](const Arguments& a) { return rules::window(a[0], a[1], true); }},
    {"prefix", 1, "prefix:LENGTH        causal, and every query sees the first LENGTH keys",
     [](const Arguments& a) { return rules::prefix(a[0]); }},
    {"chunked", 1, "chunked:SIZE         within chunks of SIZE",
     [](const Arguments& a) { return rules::chunked(a[0]); }},
    {"document", 1, "document:TABLE       within documents: TABLE[b, position] is the document's number",
     [](const Arguments& a) { return rules::document(a[0]); }},
    {"padding", 1, "padding:TABLE        keys below TABLE[b], the valid lengths",
     [](const Arguments& a) { return fmt::format("kv_idx < {}[b]", a[0]); }},
};

const NamedRule kScores[] = {
    {"softcap", 1, "softcap:CAP          CAP * tanh(score / CAP)",
     [](const Arguments& a) { return rules::softcap(a[0]); }},
    {"alibi", 1, "alibi[:TABLE]        score + TABLE[h] * (kv_idx - q_idx); TABLE defaults to the paper's slopes",
     [](const Arguments& a) { return rules::alibi(a[0], false); }},
    {"alibi-br", 1, "alibi-br[:TABLE]     the same, aligned to the last key",
     [](const Arguments& a) { return rules::alibi(a[0], true); }},
    {"bias", 1, "bias:TABLE           score + TABLE[b, h, q_idx, kv_idx]; sizes of 1 broadcast",
     [](const Arguments& a) { return rules::bias(a[0]); }},
};

/// "name:a,b" with a known name; nothing for an expression.
struct Call {
  const NamedRule* rule;
  Arguments arguments;
};

Arguments split(std::string_view text) {
  Arguments result;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    result.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

std::optional<Call> find_call(std::span<const NamedRule> known, std::string_view specification) {
  const std::size_t colon = specification.find(':');
  const std::string_view name = specification.substr(0, colon);
  const auto rule = std::find_if(known.begin(), known.end(), [&](const NamedRule& r) { return r.name == name; });
  if (rule == known.end()) return std::nullopt;
  return Call{&*rule, colon == std::string_view::npos ? Arguments{} : split(specification.substr(colon + 1))};
}

Expected<std::string> text_of(const Call& call) {
  const bool blank = std::any_of(call.arguments.begin(), call.arguments.end(), [](const auto& a) { return a.empty(); });
  if (call.arguments.size() != call.rule->arguments || blank)
    return Status::invalid_argument(fmt::format("'{}' takes {} argument{}:\n  {}", call.rule->name,
                                                call.rule->arguments, call.rule->arguments == 1 ? "" : "s",
                                                call.rule->usage));
  return call.rule->text(call.arguments);
}

/// `outer` with each name `score` replaced by (inner).
std::string substitute_score(std::string_view outer, std::string_view inner) {
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::string result;
  for (std::size_t i = 0; i < outer.size();) {
    if (!in_word(outer[i])) {
      result += outer[i++];
      continue;
    }
    std::size_t end = i;
    while (end < outer.size() && in_word(outer[end])) ++end;
    const std::string_view word = outer.substr(i, end - i);
    result += word == "score" ? fmt::format("({})", inner) : std::string(word);
    i = end;
  }
  return result;
}

}  // namespace

Expected<std::string> mask_text(std::string_view specification, bool equal_lengths) {
  if (specification == "causal") {
    if (equal_lengths) return rules::causal_top_left();
    return Status::invalid_argument(
        "'causal' is ambiguous when the query and key lengths differ: say causal-tl (kv_idx <= q_idx) or causal-br "
        "(the "
        "last query sees every key)");
  }
  if (const auto call = find_call(kMasks, specification)) {
    if (call->rule->name == "chunked" && call->arguments.size() == 1 && !call->arguments[0].empty() &&
        call->arguments[0].find_first_not_of('0') == std::string::npos)
      return Status::invalid_argument(fmt::format("{} has no chunks; the chunk must be at least 1", specification));
    return text_of(*call);
  }
  return std::string(specification);
}

Expected<std::string> score_text(std::string_view specification, bool equal_lengths) {
  auto call = find_call(kScores, specification);
  if (!call) return std::string(specification);
  if (call->rule->name.starts_with("alibi") && call->arguments.empty()) call->arguments.emplace_back(kAlibiTable);
  if (call->rule->name == "alibi" && !equal_lengths)
    return Status::invalid_argument(
        "'alibi' is ambiguous when the query and key lengths differ: say alibi-br, or write the expression: "
        "score + slopes[h] * (kv_idx - q_idx)");
  return text_of(*call);
}

namespace {

constexpr std::size_t kMaxRuleBytes = 64 * 1024;

/// Rules are combined as text, each in parentheses: one that closed them itself would mean something else.
Status check_alone(std::string_view rule) {
  int open = 0;
  for (const char c : rule) {
    open += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (open < 0) break;
  }
  if (open == 0) return {};
  return Status::invalid_argument(fmt::format("'{}': its parentheses do not match", rule));
}

}  // namespace

Expected<std::string> combined_mask(std::span<const std::string> specifications, bool equal_lengths) {
  std::string result;
  for (const std::string& specification : specifications) {
    SACCADE_ASSIGN(const std::string text, mask_text(specification, equal_lengths));
    if (specifications.size() > 1) SACCADE_TRY(check_alone(text));
    result = result.empty() ? text : fmt::format("({}) && ({})", result, text);
  }
  return result;
}

Expected<std::string> combined_score(std::span<const std::string> specifications, bool equal_lengths) {
  std::string result;
  for (const std::string& specification : specifications) {
    SACCADE_ASSIGN(const std::string text, score_text(specification, equal_lengths));
    if (specifications.size() > 1) SACCADE_TRY(check_alone(text));
    result = result.empty() ? text : substitute_score(text, result);
    if (result.size() > kMaxRuleBytes) {
      return Status::invalid_argument(fmt::format(
          "the score rules combined have {} characters; at most {} are possible", result.size(), kMaxRuleBytes));
    }
  }
  return result;
}

std::vector<float> alibi_slopes(int heads) {
  const auto geometric = [](int count) {
    std::vector<float> slopes;
    for (int h = 0; h < count; ++h) slopes.push_back(static_cast<float>(std::exp2(-8.0 * (h + 1) / count)));
    return slopes;
  };
  if (heads <= 0) return {};
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  std::vector<float> slopes = geometric(power);
  const std::vector<float> finer = geometric(2 * power);
  for (int i = 0; static_cast<int>(slopes.size()) < heads; i += 2) slopes.push_back(finer[static_cast<std::size_t>(i)]);
  return slopes;
}

std::string rule_names_help() {
  std::string result = "Masks (--mask, several are combined with &&; or any expression):\n";
  result += "  causal               when query and key lengths are equal\n";
  for (const NamedRule& rule : kMasks) result += fmt::format("  {}\n", rule.usage);
  result += "Scores (--score, several are applied in order; or any expression):\n";
  for (const NamedRule& rule : kScores) result += fmt::format("  {}\n", rule.usage);
  return result;
}

}  // namespace saccade::cli
