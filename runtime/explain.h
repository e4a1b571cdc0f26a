// What Saccade would do and why, as JSON: for `explain`, `supports`, `emit` and the C interface.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "generator/family.h"
#include "generator/target.h"

namespace saccade {

/// {"ok":true,"families":[{"family":"cuda.fwd.sm80","ok":true,"reason":""},...],"target":{...}}
std::string supports_json(const Problem& problem, const Target& target);

/// supports_json() and, when there is a family: its candidates' count and the cheapest `most` with their predicted
/// cost, ranked for planning_shape(shape). invalid_argument when the problem or the shape is wrong.
Expected<std::string> explain_json(const Problem& problem, const Shape& shape, const Target& target,
                                   const expr::Bindings& bindings, int most);

/// The source for `schedule`, or for the cost model's first choice when it is null.
Expected<std::string> emit_source(const Problem& problem, const Shape& shape, const Target& target,
                                  const Schedule* schedule);

std::string to_json(const Target& target);

/// A device ("cpu", "cuda", "cuda:N") or a CUDA architecture ("sm_90a"), which needs no GPU.
Expected<Target> target_from_name(std::string_view name);

}  // namespace saccade
