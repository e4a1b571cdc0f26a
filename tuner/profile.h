// Profiles: the problems and shapes that a sweep measures, as files that people write and that captures leave.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "generator/problem.h"
#include "generator/shape.h"

namespace saccade::tuner {

struct SweepCase {
  std::string label;  ///< of the profile's entry, for people
  Problem problem;
  Shape shape;
  std::vector<double> scalars;  ///< of the problem, in its order (expr::Bindings); empty: not known

  bool operator==(const SweepCase&) const = default;
};

/// Reads a profile,
///   {"about": "...", "problems": [{"label": "prefill", "problem": {...}, "shapes": {...} or [{...}, ...], "scalars": {...}}, ...]}
/// or a capture, whose lines are {"problem": {...}, "shape": {...}, "scalars": {...}} each (generator/problem.h and shape.h say what
/// problems and shapes hold). "scalars" gives all scalars of the problem a number each, by name, or is left out: a window is then
/// measured at a size that the tuner chooses. Lines that stand in a capture before count once; lines that are no JSON at all, as
/// programs that were killed or had no disk leave them, are left out with one warning.
///
/// Shapes of a profile name "heads_q" and, if they differ, "heads_kv"; "seqlen", or "seqlen_q" and "seqlen_kv"; and "batch" (1) or
/// "tokens", from which the batch follows (tokens / seqlen_q, at least 1). Of packed (varlen) problems "batch" is how many
/// sequences there are, "seqlen" the longest and "tokens" the rows of all, of q and of k and v. Any of these is a number, a list
/// of numbers, or {"from": 512, "to": 8192, "times": 2} or {"from": .., "to": .., "plus": ..}, both ends included; several make
/// every combination, the first key that is named here turning slowest.
///
/// Errors: `invalid_argument` that says where in the file, what was found and what is possible; at most 64 MiB and 65,536 cases.
Expected<std::vector<SweepCase>> read_profile(std::string_view text);

/// The cases that need measuring: one for each problem and planning_shape (runtime/engine.h), the first, with that shape.
std::vector<SweepCase> distinct_cases(const std::vector<SweepCase>& cases);

/// Part `index` of `count` (from 0), for job arrays: every count-th case. Parts do not overlap, and all of them are all cases.
std::vector<SweepCase> shard_of(const std::vector<SweepCase>& cases, int index, int count);

/// "problem", "shape" and, where they are known, "scalars", as a line of a capture without its newline.
std::string to_json(const SweepCase& item);

/// A profile that comes with Saccade (tuner/profiles/NAME.json).
struct ShippedProfile {
  std::string_view name, text;
};
std::span<const ShippedProfile> shipped_profiles();

}  // namespace saccade::tuner
