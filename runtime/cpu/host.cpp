#include "runtime/cpu/host.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace saccade::cpu {
namespace {

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf = 0) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

bool bit(unsigned value, int index) { return (value >> index & 1U) != 0; }

/// Which register states the operating system saves (Intel SDM volume 1, 13.3): without it the instructions fault.
std::uint64_t saved_states() {
  if (!bit(cpuid(1).ecx, 27)) return 0;  // OSXSAVE
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

struct Isa {
  bool avx2 = false, avx512 = false, avx512_bf16 = false;
};

Isa detect_isa() {
  constexpr std::uint64_t kYmm = 0x6, kZmm = 0xe6;  // XMM | YMM; and opmask | ZMM_Hi256 | Hi16_ZMM
  const std::uint64_t states = saved_states();
  const Registers one = cpuid(1), seven = cpuid(7), seven_one = cpuid(7, 1), extended = cpuid(0x80000001);
  Isa isa;
  isa.avx2 = (states & kYmm) == kYmm && bit(one.ecx, 28) && bit(one.ecx, 12) && bit(one.ecx, 29) && bit(one.ecx, 22) &&
             bit(one.ecx, 23) && bit(seven.ebx, 3) && bit(seven.ebx, 5) && bit(seven.ebx, 8) && bit(extended.ecx, 5);
  isa.avx512 = isa.avx2 && (states & kZmm) == kZmm && bit(seven.ebx, 16) && bit(seven.ebx, 17) && bit(seven.ebx, 28) &&
               bit(seven.ebx, 30) && bit(seven.ebx, 31);
  isa.avx512_bf16 = isa.avx512 && seven.eax >= 1 && bit(seven_one.eax, 5);
  return isa;
}

/// The LLVM name of the microarchitecture, for instruction scheduling only: an unknown one gives good generic code.
std::string tuning_cpu(bool avx512) {
  char vendor[13] = {};
  const Registers zero = cpuid(0), one = cpuid(1);
  std::memcpy(vendor, &zero.ebx, 4);
  std::memcpy(vendor + 4, &zero.edx, 4);
  std::memcpy(vendor + 8, &zero.ecx, 4);
  unsigned family = one.eax >> 8 & 0xf;
  unsigned model = one.eax >> 4 & 0xf;
  if (family == 0xf) family += one.eax >> 20 & 0xff;
  if (family == 0x6 || family >= 0xf) model |= (one.eax >> 16 & 0xf) << 4;

  if (std::strcmp(vendor, "AuthenticAMD") == 0) {
    if (family == 0x17) return model < 0x30 ? "znver1" : "znver2";
    if (family == 0x19) return (model >= 0x10 && model < 0x20) || model >= 0x60 ? "znver4" : "znver3";
    if (family >= 0x1a) return "znver4";  // LLVM 19.1 schedules Zen 5 as Zen 4
  }
  if (std::strcmp(vendor, "GenuineIntel") == 0 && family == 6) {
    switch (model) {
      case 0x55: return "skylake-avx512";
      case 0x6a:
      case 0x6c: return "icelake-server";
      case 0x8f: return "sapphirerapids";
      case 0xcf: return "emeraldrapids";
      case 0xad:
      case 0xae: return "graniterapids";
      case 0x97:
      case 0x9a:
      case 0xb7:
      case 0xba:
      case 0xbf: return "alderlake";
      case 0x4e:
      case 0x5e:
      case 0x8e:
      case 0x9e:
      case 0xa5:
      case 0xa6: return "skylake";
      case 0x3c:
      case 0x3f:
      case 0x45:
      case 0x46: return "haswell";
      case 0x3d:
      case 0x47:
      case 0x4f:
      case 0x56: return "broadwell";
      default: break;
    }
  }
  return avx512 ? "x86-64-v4" : "x86-64-v3";
}

std::string brand_name() {
  char name[49] = {};
  if (cpuid(0x80000000).eax < 0x80000004) return "x86-64";
  for (unsigned i = 0; i < 3; ++i) {
    const Registers r = cpuid(0x80000002 + i);
    std::memcpy(name + 16 * i, &r, sizeof(r));
  }
  std::string text(name);
  const auto first = text.find_first_not_of(' ');
  const auto last = text.find_last_not_of(' ');
  return first == std::string::npos ? "x86-64" : text.substr(first, last - first + 1);
}

/// sysconf reads cpuid or sysfs; a container may hide both, then typical values stand in.
std::int64_t cache_bytes(int name, std::int64_t typical) {
  const long value = sysconf(name);
  return value > 0 ? value : typical;
}

std::vector<std::string> features_of(const std::string& arch, const Isa& isa) {
  std::vector<std::string> features = {"avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt"};
  if (arch == "avx512") {
    features.insert(features.end(), {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"});
    if (isa.avx512_bf16) features.push_back("avx512bf16");
  }
  std::sort(features.begin(), features.end());
  return features;
}

}  // namespace

int usable_cores() {
  // A mask of 8192 CPUs: the kernel refuses a smaller one than its own.
  constexpr int kMaxCpus = 8192;
  cpu_set_t* set = CPU_ALLOC(kMaxCpus);
  if (set == nullptr) return 1;
  const std::size_t bytes = CPU_ALLOC_SIZE(kMaxCpus);
  CPU_ZERO_S(bytes, set);
  const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 1;
  CPU_FREE(set);
  return std::max(count, 1);
}

Expected<Target> host_target(const std::string& arch) {
  if (!arch.empty() && arch != "avx2" && arch != "avx512") {
    return Status::invalid_argument(fmt::format("unknown CPU architecture '{}'; known are avx2 and avx512", arch));
  }
  const Isa isa = detect_isa();
  if (!isa.avx2) {
    return Status::unsupported(fmt::format(
        "CPU kernels need AVX2, FMA, F16C and BMI2, enabled by the operating system; '{}' lacks them", brand_name()));
  }
  if (arch == "avx512" && !isa.avx512) {
    return Status::unsupported(
        fmt::format("CPU kernels for avx512 need AVX-512 F, BW, CD, DQ and VL, enabled by the operating system; '{}' "
                    "lacks them; avx2 works",
                    brand_name()));
  }
  Target target;
  target.kind = Target::Kind::cpu;
  target.arch = !arch.empty() ? arch : (isa.avx512 ? "avx512" : "avx2");
  target.name = brand_name();
  target.features = features_of(target.arch, isa);
  target.cpu = tuning_cpu(target.arch == "avx512");
  target.cores = usable_cores();
  target.l1d_bytes = static_cast<int>(cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 32 << 10));
  target.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 1 << 20);
  // Not measured here: a stream test would cost more than the first kernel. One core of a server draws 10 to 20 GB/s.
  target.memory_gb_per_s = 16.0 * target.cores;
  return target;
}

}  // namespace saccade::cpu
