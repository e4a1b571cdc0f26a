// From q . k to the weights of softmax. S stays the unscaled product until a difference of two scores is taken, so that scale
// and log2(e) round a small number and not each score: an error of 6e-5 in P at |S| = 1000. What a score rule gives is natural
// and needs log2(e) alone.
#pragma once

#include "saccade_templates/cpu/prims/math.h"
#include "saccade_templates/cpu/rules.h"

namespace saccade::cpu {

template <class Config>
class Scores {
  static constexpr bool kNatural = Config::Rules::has_score;
  static constexpr int kWidth = Config::vector_bits / 32;
  using Float = FloatVector<kWidth>;

  float factor_;  ///< log2(e) times what turns S into a natural score

 public:
  /// A scale of 0 is taken as the least normal number: 0 * -inf would give back what the mask hides.
  SACCADE_INLINE explicit Scores(const KernelParams& p) : factor_(kLog2E) {
    const float magnitude = __builtin_fabsf(p.scale);
    if constexpr (!kNatural) factor_ *= magnitude > 0x1p-126f ? magnitude : 0x1p-126f;
  }

  /// Whether the queries enter with their sign changed, so that the largest product is the largest score.
  static SACCADE_INLINE bool negated(const KernelParams& p) { return !kNatural && p.scale < 0.0f; }

  /// A maximum of scores as the state of a row keeps it: in units of log2, unless a rule made it natural.
  SACCADE_INLINE Float row_max_of(Float largest_score) const {
    return kNatural ? largest_score : largest_score * factor_;
  }

  /// What weights are measured from: the row maximum, or 0 for a row that keeps nothing, since -inf - -inf is NaN.
  static SACCADE_INLINE Float reference_of(Float row_max) {
    return select<kWidth>(row_max == Float(-kInfinity), Float(0.0f), row_max);
  }

  /// e to the score less the reference, for a score of at most the row maximum.
  SACCADE_INLINE Float weight(Float s, Float reference) const {
    return exp2_of_nonpositive<kWidth>(kNatural ? (s - reference) * factor_ : s * factor_ - reference);
  }

  /// What weights that were measured from an earlier row maximum must be multiplied by: exactly 1 if it is still the maximum.
  SACCADE_INLINE Float correction(Float earlier_max, Float reference) const {
    const Float difference = earlier_max - reference;
    return exp2_of_nonpositive<kWidth>(kNatural ? difference * factor_ : difference);
  }

  /// Natural log of the sum of e^score over a row, from its maximum and the sum of its weights.
  static SACCADE_INLINE Float log_sum_exp(Float row_max, Float row_sum) {
    const Float log_sum = log2_of_sum<kWidth>(row_sum);
    return kNatural ? row_max + log_sum * kLn2 : (row_max + log_sum) * kLn2;
  }
};

}  // namespace saccade::cpu
