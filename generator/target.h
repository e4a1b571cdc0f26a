// Target: where a kernel runs. What the cost models and legality functions need to know of a machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace saccade {

struct Target {
  enum class Kind : std::uint8_t { cuda, cpu };
  Kind kind = Kind::cpu;
  std::string arch;  ///< CUDA: exact, such as "sm_80" or "sm_90a". CPU: "avx2" or "avx512".
  std::string name;  ///< marketing name: a label only, in no key

  // CUDA
  int compute_capability = 0;  ///< 80, 86, 89, 90, 100, 120
  int sm_count = 0;
  int shared_bytes_per_block = 0;  ///< opt-in maximum
  int shared_bytes_per_sm = 0;
  int clock_mhz = 0;
  // CPU
  int cores = 0;
  int l1d_bytes = 0;
  std::vector<std::string> features;  ///< resolved ISA features, sorted ("avx512f", "f16c", ...); never "native"
  std::string cpu;                    ///< resolved LLVM CPU name for tuning, such as "znver4"
  // Both
  std::int64_t l2_bytes = 0;
  double memory_gb_per_s = 0;

  bool operator==(const Target&) const = default;
};

/// The part of a target that decides which binary can run: kind, arch, CPU features. Goes into binary keys.
std::string binary_identity(const Target& target);
/// The part that decides which schedule is fastest: the above, SM or core count, cache and memory class. Goes into tuning keys.
std::string tuning_identity(const Target& target);
/// A CUDA target with that tuning_identity: of its architecture, with its SM count, shared memory, and cache and memory of the middle of
/// its classes. Nothing for other text, and for CPUs.
std::optional<Target> target_of_identity(std::string_view identity);

/// A typical member of a CUDA architecture ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a", with or without suffix),
/// for compiling and planning without the device.
Expected<Target> cuda_target(std::string_view arch);
const std::vector<std::string>& known_cuda_archs();

}  // namespace saccade
