// The CUDA compiler: NVRTC through dlopen, source to cubin. Calls run concurrently: NVRTC's documentation allows it for
// distinct programs, and four compiles in four threads were measured at 1.8 times four in a row on two cores.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>

#include "runtime/compiler.h"
#include "runtime/cuda/nvrtc_search.h"
#include "runtime/cuda/ptxas_log.h"

namespace saccade {
namespace {

using cuda::NvrtcFile;

using NvrtcProgram = struct OpaqueNvrtcProgram*;
using NvrtcResult = int;
constexpr NvrtcResult kNvrtcSuccess = 0;
constexpr NvrtcResult kNvrtcOutOfMemory = 1;

struct Nvrtc {
  int major = 0, minor = 0;
  std::vector<int> archs;  ///< 80, 86, ... as nvrtcGetSupportedArchs says

  const char* (*nvrtcGetErrorString)(NvrtcResult);
  NvrtcResult (*nvrtcVersion)(int*, int*);
  NvrtcResult (*nvrtcGetNumSupportedArchs)(int*);
  NvrtcResult (*nvrtcGetSupportedArchs)(int*);
  NvrtcResult (*nvrtcCreateProgram)(NvrtcProgram*, const char*, const char*, int, const char* const*,
                                    const char* const*);
  NvrtcResult (*nvrtcDestroyProgram)(NvrtcProgram*);
  NvrtcResult (*nvrtcCompileProgram)(NvrtcProgram, int, const char* const*);
  NvrtcResult (*nvrtcGetCUBINSize)(NvrtcProgram, std::size_t*);
  NvrtcResult (*nvrtcGetCUBIN)(NvrtcProgram, char*);
  NvrtcResult (*nvrtcGetProgramLogSize)(NvrtcProgram, std::size_t*);
  NvrtcResult (*nvrtcGetProgramLog)(NvrtcProgram, char*);
};

template <class Pointer>
void resolve(void* library, const char* name, Pointer& slot, std::string& missing) {
  slot = reinterpret_cast<Pointer>(dlsym(library, name));
  if (slot == nullptr && missing.empty()) missing = name;
}

Expected<const Nvrtc*> open_nvrtc(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return Status::not_found(fmt::format("NVRTC cannot be opened: {}", dlerror()));
  auto api = std::make_unique<Nvrtc>();
  std::string missing;
  resolve(library, "nvrtcGetErrorString", api->nvrtcGetErrorString, missing);
  resolve(library, "nvrtcVersion", api->nvrtcVersion, missing);
  resolve(library, "nvrtcGetNumSupportedArchs", api->nvrtcGetNumSupportedArchs, missing);
  resolve(library, "nvrtcGetSupportedArchs", api->nvrtcGetSupportedArchs, missing);
  resolve(library, "nvrtcCreateProgram", api->nvrtcCreateProgram, missing);
  resolve(library, "nvrtcDestroyProgram", api->nvrtcDestroyProgram, missing);
  resolve(library, "nvrtcCompileProgram", api->nvrtcCompileProgram, missing);
  resolve(library, "nvrtcGetCUBINSize", api->nvrtcGetCUBINSize, missing);
  resolve(library, "nvrtcGetCUBIN", api->nvrtcGetCUBIN, missing);
  resolve(library, "nvrtcGetProgramLogSize", api->nvrtcGetProgramLogSize, missing);
  resolve(library, "nvrtcGetProgramLog", api->nvrtcGetProgramLog, missing);
  if (!missing.empty())
    return Status::not_found(fmt::format("{} has no function {}: it is no NVRTC 12.4 or newer", path, missing));
  if (api->nvrtcVersion(&api->major, &api->minor) != kNvrtcSuccess)
    return Status::not_found(path + " does not tell its version");
  if (std::pair(api->major, api->minor) < std::pair(12, 4)) {
    return Status::not_found(fmt::format(
        "{} is NVRTC {}.{}; 12.4 or newer is needed (SACCADE_NVRTC names another file)", path, api->major, api->minor));
  }
  int count = 0;
  if (api->nvrtcGetNumSupportedArchs(&count) == kNvrtcSuccess && count > 0) {
    api->archs.resize(static_cast<std::size_t>(count));
    if (api->nvrtcGetSupportedArchs(api->archs.data()) != kNvrtcSuccess) api->archs.clear();
  }
  std::sort(api->archs.begin(), api->archs.end());
  return api.release();  // The library stays open for the life of the process.
}

/// "sm_90a" as 90 and 'a'.
struct Arch {
  int number = 0;
  std::string suffix;
};

std::optional<Arch> parse_arch(std::string_view text) {
  if (!text.starts_with("sm_")) return std::nullopt;
  text.remove_prefix(3);
  Arch arch;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), arch.number);
  if (error != std::errc()) return std::nullopt;
  arch.suffix.assign(rest, text.data() + text.size());
  if (!arch.suffix.empty() && arch.suffix != "a" && arch.suffix != "f") return std::nullopt;
  return arch;
}

/// The architecture to ask this NVRTC for: the exact one, or, without a suffix, an older member of the same major
/// version, whose cubins the device also runs (CUDA programming guide, "Binary Compatibility").
Expected<std::string> choose_arch(const Nvrtc& nvrtc, const std::string& wanted) {
  const std::optional<Arch> arch = parse_arch(wanted);
  if (!arch)
    return Status::invalid_argument(
        fmt::format("\"{}\" is no CUDA architecture; one looks like sm_80 or sm_90a", wanted));
  if (std::binary_search(nvrtc.archs.begin(), nvrtc.archs.end(), arch->number)) return wanted;
  if (arch->suffix.empty()) {
    for (auto known = nvrtc.archs.rbegin(); known != nvrtc.archs.rend(); ++known) {
      if (*known < arch->number && *known / 10 == arch->number / 10) return fmt::format("sm_{}", *known);
    }
  }
  return Status::unsupported(
      fmt::format("NVRTC {}.{} cannot compile for {}; it supports sm_{}. A newer NVRTC may: install one, or set "
                  "SACCADE_NVRTC to its file",
                  nvrtc.major, nvrtc.minor, wanted, fmt::join(nvrtc.archs, ", sm_")));
}

class NvrtcCompiler final : public Compiler {
 public:
  explicit NvrtcCompiler(NvrtcFile file) : file_(std::move(file)) {}

  const std::string& path() const { return file_.path; }
  std::string identity() const override { return "nvrtc: " + file_.identity; }

  // What the key holds is what is asked for; the architecture that compile() settles on and the switch of its own cache
  // follow from this and from the identity, and need the library to be open.
  std::vector<std::string> options(const Target& target) const override { return nvrtc_options(target); }

  Expected<const Nvrtc*> open() const {
    static const Expected<const Nvrtc*> opened = open_nvrtc(file_.path);
    return opened;
  }

  Expected<CompiledBinary> compile(const std::string& source, const Target& target) const override {
    SACCADE_ASSIGN(const Nvrtc* nvrtc, open());
    SACCADE_ASSIGN(std::string arch, choose_arch(*nvrtc, target.arch));
    std::vector<std::string> arguments = options(target);
    arguments.front() = "--gpu-architecture=" + arch;
    // NVRTC's own cache (since 12.9) answers without a log, and the log is where registers and spills come from.
    if (std::pair(nvrtc->major, nvrtc->minor) >= std::pair(12, 9)) arguments.emplace_back("--no-cache");
    return compile_with(*nvrtc, source, arguments);
  }

 private:
  static Expected<CompiledBinary> compile_with(const Nvrtc& nvrtc, const std::string& source,
                                               const std::vector<std::string>& arguments);
  NvrtcFile file_;
};

std::string log_of(const Nvrtc& nvrtc, NvrtcProgram program) {
  std::size_t bytes = 0;
  if (nvrtc.nvrtcGetProgramLogSize(program, &bytes) != kNvrtcSuccess || bytes == 0) return {};
  std::string log(bytes, '\0');
  if (nvrtc.nvrtcGetProgramLog(program, log.data()) != kNvrtcSuccess) return {};
  while (!log.empty() && log.back() == '\0') log.pop_back();
  return log;
}

Status failure(const Nvrtc& nvrtc, NvrtcResult result, std::string_view what, const std::string& log) {
  const StatusCode code = result == kNvrtcOutOfMemory ? StatusCode::out_of_memory : StatusCode::compile_failed;
  return {code, fmt::format("NVRTC {}.{} failed {}: {}{}{}", nvrtc.major, nvrtc.minor, what,
                            nvrtc.nvrtcGetErrorString(result), log.empty() ? "" : "\n", log)};
}

Expected<CompiledBinary> NvrtcCompiler::compile_with(const Nvrtc& nvrtc, const std::string& source,
                                                     const std::vector<std::string>& arguments) {
  const auto start = std::chrono::steady_clock::now();
  // The embedded templates are string literals, so their data ends in a zero; names and texts are copied all the same,
  // since a string_view does not promise it.
  std::vector<std::string> names, texts;
  for (const EmbeddedTemplate& header : included_templates(source)) {
    names.emplace_back(header.name);
    texts.emplace_back(header.text);
  }
  std::vector<const char*> name_pointers, text_pointers, options;
  for (const std::string& name : names) name_pointers.push_back(name.c_str());
  for (const std::string& text : texts) text_pointers.push_back(text.c_str());
  for (const std::string& argument : arguments) options.push_back(argument.c_str());

  NvrtcProgram program = nullptr;
  NvrtcResult result =
      nvrtc.nvrtcCreateProgram(&program, source.c_str(), "saccade_kernel.cu", static_cast<int>(names.size()),
                               text_pointers.data(), name_pointers.data());
  if (result != kNvrtcSuccess) return failure(nvrtc, result, "to take the source", "");
  struct Destroyer {
    const Nvrtc& nvrtc;
    NvrtcProgram* program;
    ~Destroyer() { nvrtc.nvrtcDestroyProgram(program); }
  } const destroyer{nvrtc, &program};

  result = nvrtc.nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  CompiledBinary binary;
  binary.log = log_of(nvrtc, program);
  if (result != kNvrtcSuccess)
    return failure(nvrtc, result, fmt::format("with {}", fmt::join(arguments, " ")), binary.log);
  std::size_t bytes = 0;
  result = nvrtc.nvrtcGetCUBINSize(program, &bytes);
  if (result == kNvrtcSuccess && bytes > 0) {
    binary.code.resize(bytes);
    result = nvrtc.nvrtcGetCUBIN(program, binary.code.data());
  }
  if (result != kNvrtcSuccess || bytes == 0) return failure(nvrtc, result, "to hand over a cubin", binary.log);

  const cuda::PtxasUsage usage = cuda::parse_ptxas_log(binary.log);
  if (usage.keeps_registers) return failure(nvrtc, result, "to share registers out between warps", binary.log);
  binary.registers = usage.registers;
  binary.spill_bytes = usage.spill_bytes;
  binary.stack_bytes = usage.stack_bytes;
  binary.static_shared_bytes = usage.static_shared_bytes;
  binary.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return binary;
}

const Expected<const NvrtcCompiler*>& the_compiler() {
  static const Expected<const NvrtcCompiler*> compiler = []() -> Expected<const NvrtcCompiler*> {
    SACCADE_ASSIGN(NvrtcFile file, cuda::find_nvrtc());
    return new NvrtcCompiler(std::move(file));  // as long-lived as the library it opens
  }();
  return compiler;
}

}  // namespace

std::vector<std::string> nvrtc_options(const Target& target) {
  return {"--gpu-architecture=" + target.arch, "--std=c++20", "--device-as-default-execution-space",
          "--ptxas-options=-v"};
}

Expected<const Compiler*> nvrtc_compiler() {
  const Expected<const NvrtcCompiler*>& compiler = the_compiler();
  if (!compiler.ok()) return compiler.status();
  return static_cast<const Compiler*>(*compiler);
}

std::string nvrtc_path() { return the_compiler().ok() ? (*the_compiler())->path() : std::string(); }

Expected<std::string> nvrtc_version() {
  if (!the_compiler().ok()) return the_compiler().status();
  SACCADE_ASSIGN(const Nvrtc* nvrtc, (*the_compiler())->open());
  return fmt::format("{}.{}", nvrtc->major, nvrtc->minor);
}

}  // namespace saccade
