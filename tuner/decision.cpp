#include "tuner/decision.h"

#include <fmt/format.h>

#include <cmath>
#include <tuple>

namespace saccade::tuner {
namespace {

std::tuple<std::int64_t, std::int64_t, int> footprint(const Resources& r) {
  return {r.shared_bytes, static_cast<std::int64_t>(r.registers_per_thread) * r.threads, r.threads};
}

bool is_preferred(const Contender& a, const Contender& b) {
  if (footprint(a.resources) != footprint(b.resources)) return needs_fewer_resources(a.resources, b.resources);
  return a.order < b.order;
}

/// Above this the control says that nothing can be told apart: other work has the machine.
constexpr double kMostNoise = 0.10;

/// By more than the band and by more than what its own ratio may be off: anything less would trade the default for
/// nothing.
bool clearly_beats(const Contender& contender, const Contender& standard, double band) {
  return (contender.ratio + contender.error) * (1 + band) < standard.ratio;
}

std::string reason_for(const Contender& winner, const Contender& fastest, bool is_undecidable,
                       const DecisionRules& rules, double gain) {
  if (is_undecidable) {
    return fmt::format(
        "the default stays: its own two copies differ by {:.0f}%, so the machine is busy with other work",
        100 * rules.noise);
  }
  if (!winner.is_default)
    return fmt::format("{:.2f}% faster than the default, band {:.2f}%", 100 * gain, 100 * rules.band());
  if (fastest.is_default) return "the cost model's choice is the fastest";
  return fmt::format(
      "the fastest beats the default by {:.2f}%, which is inside the band of {:.2f}% and its own error of {:.2f}% "
      "together",
      100 * (winner.ratio / fastest.ratio - 1), 100 * rules.band(), 100 * fastest.error);
}

}  // namespace

bool needs_fewer_resources(const Resources& a, const Resources& b) { return footprint(a) < footprint(b); }

bool is_hopeless(const Contender& contender, const Contender& fastest, const DecisionRules& rules) {
  if (contender.is_default) return false;
  // With too few samples the errors are infinite: then only a contender of twice the time is given up.
  if (!std::isfinite(contender.error) || !std::isfinite(fastest.error)) return contender.ratio > 2 * fastest.ratio;
  return contender.ratio - contender.error > (fastest.ratio + fastest.error) * (1 + rules.band());
}

Decision decide(std::span<const Contender> contenders, const DecisionRules& rules) {
  Decision decision;
  decision.band = rules.band();
  const Contender* fastest = nullptr;
  const Contender* standard = nullptr;
  for (const Contender& contender : contenders) {
    if (!std::isfinite(contender.ratio)) continue;
    if (contender.is_default) standard = &contender;
    if (fastest == nullptr || contender.ratio < fastest->ratio) fastest = &contender;
  }
  if (fastest == nullptr) {
    decision.reason = "nothing was measured";
    return decision;
  }
  const double limit = fastest->ratio * (1 + decision.band);
  const bool is_undecidable = standard != nullptr && rules.noise > kMostNoise;
  const bool default_is_tied = standard != nullptr && standard->ratio <= limit;
  const Contender* winner = standard != nullptr ? standard : fastest;
  if (!is_undecidable && !default_is_tied) {
    for (const Contender& contender : contenders) {
      if (!std::isfinite(contender.ratio) || contender.ratio > limit) continue;
      if (standard != nullptr && !clearly_beats(contender, *standard, decision.band)) continue;
      if (winner == standard || is_preferred(contender, *winner)) winner = &contender;
    }
  }
  decision.winner = static_cast<int>(winner - contenders.data());
  decision.gain = standard == nullptr ? 0 : standard->ratio / winner->ratio - 1;
  decision.reason = reason_for(*winner, *fastest, is_undecidable, rules, decision.gain);
  return decision;
}

}  // namespace saccade::tuner
