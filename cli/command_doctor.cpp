// saccade doctor: what is found on this machine, and how to fix what is not.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <utility>
#include <vector>

#include "cache/pack_path.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/session.h"
#include "runtime/compiler.h"
#include "tuner/worker_path.h"

namespace saccade::cli {
namespace {

/// One thing that is looked for. `needed_for` says who misses it.
struct Finding {
  std::string name;
  bool found = false;
  std::string what;  ///< when found; otherwise why not
  std::string fix;   ///< when not found
  Json details = Json::object();
};

Finding named(std::string name) {
  Finding finding;
  finding.name = std::move(name);
  return finding;
}

Finding find_cpu() {
  Finding finding = named("cpu");
  const auto device = cpu_device();
  finding.found = device.ok();
  if (!device.ok()) {
    finding.what = device.status().message();
    finding.fix = "CPU kernels need an x86-64 processor with AVX2, FMA and F16C";
    return finding;
  }
  const Target& target = (*device)->target();
  finding.what =
      fmt::format("{}, {}, {} cores, L1d {}, L2 {}", target.name.empty() ? target.cpu : target.name, target.arch,
                  target.cores, human_bytes(target.l1d_bytes), human_bytes(static_cast<double>(target.l2_bytes)));
  finding.details = json_of(target);
  return finding;
}

Finding find_clang() {
  Finding finding = named("cpu compiler");
  const Status status = clang_status();
  const auto compiler = clang_compiler();
  finding.found = status.ok() && compiler.ok();
  finding.what = finding.found ? (*compiler)->identity() : status.message();
  finding.fix =
      "build with -DSACCADE_CLANG=ON (needs llvm-19-dev, libclang-19-dev, libclang-cpp19-dev), or point SACCADE_CLANG "
      "at "
      "libsaccade_clang.so; CPU kernels that are in the cache run without it";
  return finding;
}

/// Architectures that NVRTC really compiles for.
std::vector<std::string> working_archs(const Compiler& compiler) {
  std::vector<std::string> archs;
  for (const std::string& arch : known_cuda_archs()) {
    const auto target = cuda_target(arch);
    if (target.ok() && compiler.compile("extern \"C\" __global__ void probe() {}\n", *target).ok())
      archs.push_back(arch);
  }
  return archs;
}

Finding find_nvrtc() {
  Finding finding = named("cuda compiler");
  const auto compiler = nvrtc_compiler();
  const auto version = nvrtc_version();
  finding.found = compiler.ok() && version.ok();
  finding.fix =
      "install NVRTC 12.4 or newer: a CUDA toolkit, or 'pip install nvidia-cuda-nvrtc'; or point SACCADE_NVRTC at "
      "libnvrtc.so; CUDA kernels that are in the cache run without it";
  if (!finding.found) {
    finding.what = (compiler.ok() ? version.status() : compiler.status()).message();
    return finding;
  }
  const std::vector<std::string> archs = working_archs(**compiler);
  finding.what = fmt::format("NVRTC {}, {}, compiles for {}", *version, nvrtc_path(), fmt::join(archs, " "));
  finding.details = {{"version", *version}, {"path", nvrtc_path()}, {"archs", archs}};
  return finding;
}

Finding find_driver() {
  Finding finding = named("cuda driver");
  const std::string version = cuda_driver_version();
  finding.found = !version.empty();
  finding.what = finding.found ? fmt::format("CUDA {}, {} device(s)", version, cuda_device_count()) : "no libcuda.so.1";
  finding.fix = "install the NVIDIA driver; without it CUDA kernels are compiled but not run";
  finding.details = {{"version", version}, {"devices", cuda_device_count()}};
  return finding;
}

std::vector<Finding> find_devices() {
  std::vector<Finding> findings;
  for (int ordinal = 0; ordinal < cuda_device_count(); ++ordinal) {
    Finding finding = named(fmt::format("cuda:{}", ordinal));
    const auto device = cuda_device(ordinal);
    finding.found = device.ok();
    if (device.ok()) {
      const Target& target = (*device)->target();
      finding.what =
          fmt::format("{}, {}, {} SMs, {} shared a block, L2 {}", target.name, target.arch, target.sm_count,
                      human_bytes(target.shared_bytes_per_block), human_bytes(static_cast<double>(target.l2_bytes)));
      finding.details = json_of(target);
    } else {
      finding.what = device.status().message();
      finding.fix = "nvidia-smi says whether the driver sees it; CUDA_VISIBLE_DEVICES may hide it";
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

Finding find_worker() {
  Finding finding = named("tuning worker");
  const auto worker = tuner::find_worker();
  finding.found = worker.ok();
  finding.what = worker.ok() ? *worker : worker.status().message();
  finding.fix = "keep saccade-worker beside the command or in libexec/saccade, or point SACCADE_WORKER at it";
  return finding;
}

Finding find_cache(const EngineFlags& flags) {
  Finding finding = named("cache");
  cache::Options options;
  options.directory = flags.cache_dir;
  options.finds_packs = false;  // they have lines of their own
  const auto store = cache::Store::open(options);
  const std::string path = store->user_path();
  const auto faults = store->verify();
  finding.fix =
      "saccade cache verify lists the faults; a damaged row is a miss, and the file may be deleted at any time";
  if (path.empty()) {
    finding.what = "memory only: no folder can be written";
    finding.fix = "set SACCADE_CACHE_DIR, XDG_CACHE_HOME or HOME to a folder that you may write";
    return finding;
  }
  bool writable = false;
  for (const auto& layer : store->statistics()) writable = writable || (layer.path == path && layer.writable);
  struct stat information{};
  const bool exists = ::stat(path.c_str(), &information) == 0;
  finding.found = faults.empty();
  finding.what = faults.empty() ? fmt::format("{}, {}{}, healthy", path, writable ? "read-write" : "read-only",
                                              exists ? fmt::format(", mode {:o}", information.st_mode & 07777U) : "")
                                : fmt::format("{}: {} faults, the first: {}", path, faults.size(), faults.front());
  finding.details = {{"path", path}, {"writable", writable}, {"faults", faults}};
  if (exists) finding.details["mode"] = fmt::format("{:o}", information.st_mode & 07777U);
  return finding;
}

std::vector<Finding> find_packs() {
  std::vector<Finding> findings;
  const auto trusted = cache::trusted_keys("");
  for (const std::string& path : cache::pack_files({})) {
    Finding finding = named("pack");
    const Status status = trusted.ok() ? cache::check_pack(path, *trusted) : trusted.status();
    finding.found = status.ok();
    finding.what = status.ok() ? path : status.message();
    finding.fix = "it is left out, and the rest serves; cache/README.md says which packs are accepted";
    finding.details = {{"path", path}};
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

Expected<int> doctor_command(const Options& options) {
  std::vector<Finding> findings = {find_cpu(), find_clang(), find_nvrtc(), find_driver()};
  for (Finding& device : find_devices()) findings.push_back(std::move(device));
  findings.push_back(find_worker());
  findings.push_back(find_cache(options.engine));
  for (Finding& pack : find_packs()) findings.push_back(std::move(pack));

  if (options.json) {
    Json list = Json::array();
    for (const Finding& finding : findings) {
      Json entry = {{"name", finding.name}, {"found", finding.found}, {"what", finding.what}};
      if (!finding.found) entry["fix"] = finding.fix;
      if (!finding.details.empty()) entry["details"] = finding.details;
      list.push_back(entry);
    }
    print_json({{"version", std::string(kGeneratorVersion)}, {"findings", list}});
    return kExitOk;
  }
  TextTable table({"", "", "what"});
  for (const Finding& finding : findings) {
    table.add({finding.found ? coloured(Colour::green, "ok") : coloured(Colour::yellow, "missing"), finding.name,
               finding.what});
    if (!finding.found) table.add({"", "", coloured(Colour::dim, "fix: " + finding.fix)});
  }
  print_line(table.text());
  return kExitOk;
}

}  // namespace saccade::cli
