#include "generator/target.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace saccade {
namespace {

/// Machines that differ less than by half an octave share tuned rows.
int octave(double value) { return value > 0 ? static_cast<int>(std::lround(std::log2(value))) : 0; }

/// Typical members, from the vendor's data sheets and the CUDA programming guide's table of compute capabilities.
const std::vector<Target>& cuda_targets() {
  static const std::vector<Target> targets = [] {
    const auto make = [](std::string_view arch, std::string_view name, int capability, int sm_count, int block_kib,
                         int sm_kib, int clock_mhz, int l2_mib, double memory_gb_per_s) {
      Target target;
      target.kind = Target::Kind::cuda;
      target.arch = arch;
      target.name = name;
      target.compute_capability = capability;
      target.sm_count = sm_count;
      target.shared_bytes_per_block = block_kib * 1024;
      target.shared_bytes_per_sm = sm_kib * 1024;
      target.clock_mhz = clock_mhz;
      target.l2_bytes = std::int64_t{l2_mib} << 20;
      target.memory_gb_per_s = memory_gb_per_s;
      return target;
    };
    return std::vector<Target>{
        make("sm_80", "NVIDIA A100", 80, 108, 163, 164, 1410, 40, 2039),
        make("sm_86", "NVIDIA A10", 86, 72, 99, 100, 1695, 6, 600),
        make("sm_89", "NVIDIA L40S", 89, 142, 99, 100, 2520, 96, 864),
        make("sm_90a", "NVIDIA H200", 90, 132, 227, 228, 1980, 60, 4800),
        make("sm_100a", "NVIDIA B200", 100, 148, 227, 228, 1965, 126, 8000),
        make("sm_120a", "NVIDIA GeForce RTX 5090", 120, 170, 99, 100, 2407, 96, 1792),
    };
  }();
  return targets;
}

std::string_view without_suffix(std::string_view arch) {
  return !arch.empty() && arch.back() == 'a' ? arch.substr(0, arch.size() - 1) : arch;
}

}  // namespace

std::string binary_identity(const Target& target) {
  if (target.kind == Target::Kind::cuda) return fmt::format("cuda:{}", target.arch);
  return fmt::format("cpu:{}:{}", target.arch, fmt::join(target.features, ","));
}

std::string tuning_identity(const Target& target) {
  const std::string binary = binary_identity(target);
  const int l2_octave = octave(static_cast<double>(target.l2_bytes));
  if (target.kind == Target::Kind::cuda) {
    return fmt::format("{}:sm_count={}:shared={}:l2=2^{}:memory=2^{}", binary, target.sm_count,
                       target.shared_bytes_per_block, l2_octave, octave(target.memory_gb_per_s));
  }
  return fmt::format("{}:cpu={}:cores={}:l1d={}:l2=2^{}:memory=2^{}", binary, target.cpu, target.cores,
                     target.l1d_bytes, l2_octave, octave(target.memory_gb_per_s));
}

std::optional<Target> target_of_identity(std::string_view identity) {
  std::array<char, 16> arch{};
  int sm_count = 0, shared = 0, l2_octave = 0, memory_octave = 0, length = 0;
  const std::string text(identity);
  const int read = std::sscanf(text.c_str(), "cuda:%15[a-z0-9_]:sm_count=%d:shared=%d:l2=2^%d:memory=2^%d%n",
                               arch.data(), &sm_count, &shared, &l2_octave, &memory_octave, &length);
  const Expected<Target> typical = read == 5 ? cuda_target(arch.data()) : Status::invalid_argument("");
  if (!typical.ok() || typical->arch != arch.data() || static_cast<std::size_t>(length) != text.size())
    return std::nullopt;
  if (sm_count < 1 || shared < 1 || l2_octave < 0 || l2_octave > 60 || memory_octave < 0 || memory_octave > 60)
    return std::nullopt;
  Target target = *typical;
  target.name.clear();
  target.sm_count = sm_count;
  target.shared_bytes_per_block = shared;
  if (octave(static_cast<double>(target.l2_bytes)) != l2_octave)
    target.l2_bytes = static_cast<std::int64_t>(std::exp2(l2_octave));
  if (octave(target.memory_gb_per_s) != memory_octave) target.memory_gb_per_s = std::exp2(memory_octave);
  return tuning_identity(target) == identity ? std::optional(target) : std::nullopt;
}

Expected<Target> cuda_target(std::string_view arch) {
  for (const Target& target : cuda_targets()) {
    if (without_suffix(target.arch) == without_suffix(arch)) return target;
  }
  return Status::invalid_argument(
      fmt::format("unknown CUDA architecture \"{}\"; known: {}", arch, fmt::join(known_cuda_archs(), ", ")));
}

const std::vector<std::string>& known_cuda_archs() {
  static const std::vector<std::string> archs = [] {
    std::vector<std::string> names;
    for (const Target& target : cuda_targets()) names.push_back(target.arch);
    return names;
  }();
  return archs;
}

}  // namespace saccade
