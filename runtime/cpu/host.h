// What the host CPU is: instruction sets that both the CPU and the operating system support, caches, usable cores.
#pragma once

#include <string>

#include "base/status.h"
#include "generator/target.h"

namespace saccade::cpu {

/// The host as a Target. `arch` "" picks the best of "avx512" and "avx2"; a name restricts it.
/// `unsupported` when the CPU or the operating system lacks AVX2, FMA or F16C, or lacks the `arch` that was asked for;
/// `invalid_argument` for an `arch` that is none of these.
Expected<Target> host_target(const std::string& arch);

/// Cores that this process may use now (its affinity mask), at least 1.
int usable_cores();

}  // namespace saccade::cpu
