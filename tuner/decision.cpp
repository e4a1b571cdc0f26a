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
  if (a.is_default != b.is_default) return a.is_default;
  if (footprint(a.resources) != footprint(b.resources)) return needs_fewer_resources(a.resources, b.resources);
  return a.order < b.order;
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
  const Contender* winner = fastest;
  for (const Contender& contender : contenders) {
    if (!std::isfinite(contender.ratio) || contender.ratio > limit) continue;
    // A contender inside the fastest one's band but not clearly ahead of the default would trade the default for
    // nothing.
    const bool beats_default =
        standard == nullptr || contender.is_default || contender.ratio * (1 + decision.band) < standard->ratio;
    if (beats_default && is_preferred(contender, *winner)) winner = &contender;
  }
  decision.winner = static_cast<int>(winner - contenders.data());
  decision.gain = standard == nullptr ? 0 : standard->ratio / winner->ratio - 1;
  if (winner->is_default) {
    decision.reason = fastest->is_default
                          ? "the cost model's choice is the fastest"
                          : fmt::format("the fastest beats the default by {:.2f}%, inside the band of {:.2f}%",
                                        100 * (winner->ratio / fastest->ratio - 1), 100 * decision.band);
  } else {
    decision.reason =
        fmt::format("{:.2f}% faster than the default, band {:.2f}%", 100 * decision.gain, 100 * decision.band);
  }
  return decision;
}

}  // namespace saccade::tuner
