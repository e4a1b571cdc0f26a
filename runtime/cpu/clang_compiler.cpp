// The front of libsaccade_clang.so: finds and opens it on first use, and says how CPU kernels are compiled.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/log.h"
#include "runtime/clang/clang_entry.h"
#include "runtime/compiler.h"
#include "runtime/library_file.h"

namespace saccade {
namespace {

#ifndef SACCADE_CLANG_BUILT_WITH
#define SACCADE_CLANG_BUILT_WITH ""  // built without a CPU compiler
#endif

constexpr const char* kLibraryName = "libsaccade_clang.so";
/// The compiler proper, by SONAME. libsaccade_clang.so only hands it the options, which are in the binary key as they
/// are, and is new in each of Saccade's builds.
constexpr const char* kCompilerLibraries[] = {"libclang-cpp.so.19.1", "libLLVM.so.19.1"};

/// Which builds of them the loader would take, read from the files: a warm start must not open LLVM (25 ms). A machine
/// without LLVM runs the kernels of the compiler that Saccade was built with.
std::string identity_of_libraries() {
  std::string identity = "clang 19.1";
  for (const char* name : kCompilerLibraries) {
    const std::string path = find_on_loader_path(name);
    if (path.empty()) return "clang 19.1" SACCADE_CLANG_BUILT_WITH;
    identity += ", " + identity_of_file(path);
  }
  return identity;
}

/// Where this code lies: libsaccade.so, or the executable that it is linked into.
std::string own_directory() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_directory), &info) == 0 || info.dli_fname == nullptr) return {};
  char* resolved = realpath(info.dli_fname, nullptr);
  if (resolved == nullptr) return {};
  std::string path(resolved);
  std::free(resolved);
  return path.substr(0, path.rfind('/'));
}

std::vector<std::string> library_candidates() {
  if (const char* chosen = secure_getenv("SACCADE_CLANG"); chosen != nullptr && *chosen != 0) return {chosen};
  const std::string directory = own_directory();
  if (directory.empty()) return {};
  // The last is where it lies from libexec/saccade, the folder of the tuning worker.
  return {directory + "/" + kLibraryName, directory + "/../lib/" + kLibraryName,
          directory + "/../../lib/" + kLibraryName};
}

struct Library {
  Status status;
  SaccadeClangCompile compile = nullptr;
  std::string version;
};

Library open_library() {
  Library library;
  std::string tried;
  for (const std::string& path : library_candidates()) {
    // RTLD_LOCAL, and never closed: LLVM registers process-wide state. RTLD_LAZY: binding all of it at once is slow.
    void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) {
      tried += fmt::format("\n  {}", dlerror());
      continue;
    }
    library.compile = reinterpret_cast<SaccadeClangCompile>(dlsym(handle, "saccade_clang_compile"));
    const auto version = reinterpret_cast<SaccadeClangVersion>(dlsym(handle, "saccade_clang_version"));
    if (library.compile == nullptr || version == nullptr) {
      library.status = Status::not_found(fmt::format("{} is no Saccade compiler library", path));
      return library;
    }
    library.version = version();
    log::info(log::Topic::compile, fmt::format("opened {} ({})", path, library.version));
    return library;
  }
  library.status = Status::not_found(
      fmt::format("no compiler for CPU kernels: {} cannot be opened. It is installed beside "
                  "libsaccade.so when Saccade is built with "
                  "SACCADE_CLANG=ON, and comes with the Python package saccade-cpu; $SACCADE_CLANG may name "
                  "the file. Tried:{}",
                  kLibraryName, tried.empty() ? " nothing" : tried));
  return library;
}

const Library& library() {
  static const Library opened = open_library();
  return opened;
}

struct Output {
  std::string object;
  std::string log;
};

class ClangCompiler final : public Compiler {
 public:
  std::string identity() const override { return identity_; }

  std::vector<std::string> options(const Target& target) const override {
    std::vector<std::string> options = {
        "-triple", "x86_64-unknown-linux-gnu", "-emit-obj", "-x", "c++", "-std=c++20", "-main-file-name", "kernel.cpp",
        "-ffreestanding", "-nostdsysteminc", "-nobuiltininc", "-fgnuc-version=4.2.1", "-fwrapv", "-fdeprecated-macro",
        "-mrelocation-model", "pic", "-pic-level", "2", "-mframe-pointer=none", "-fno-rtti", "-O2",
        // Vector code is written out in the templates; the vectorisers serve the emitted mask and score rules.
        // Unrolling is asked for where it pays: left to LLVM it takes a third of the compile time (190 ms against 120
        // ms).
        "-fno-unroll-loops", "-discard-value-names", "-disable-llvm-verifier", "-vectorize-loops", "-vectorize-slp",
        // Not -ffast-math: -inf and NaN carry meaning. Contraction alone turns a * b + c into one FMA.
        "-ffp-contract=fast", "-fno-rounding-math", "-fdenormal-fp-math=ieee,ieee", "-Wno-everything", "-target-cpu",
        "x86-64", "-tune-cpu", target.cpu.empty() ? "generic" : target.cpu};
    for (const std::string& feature : target.features) {
      options.push_back("-target-feature");
      options.push_back("+" + feature);
    }
    // Without it LLVM splits 512-bit vectors in two when it tunes for CPUs that lower their clock for them.
    if (target.arch == "avx512") options.push_back("-mprefer-vector-width=512");
    return options;
  }

  Expected<CompiledBinary> compile(const std::string& source, const Target& target) const override {
    if (target.kind != Target::Kind::cpu) return Status::invalid_argument("Clang compiles CPU kernels only");
    if (!library().status.ok()) return library().status;
    const auto start = std::chrono::steady_clock::now();
    const std::vector<std::string> arguments = options(target);
    std::vector<const char*> pointers;
    for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
    std::vector<SaccadeClangHeader> headers;
    for (const EmbeddedTemplate& header : included_templates(source)) {
      headers.push_back({header.name.data(), header.text.data(), header.text.size()});
    }
    const SaccadeClangInput input = {source.data(),  source.size(),   headers.data(),
                                     headers.size(), pointers.data(), pointers.size()};
    Output output;
    const int result = library().compile(
        &input, &output,
        [](void* context, const char* data, std::size_t size) {
          static_cast<Output*>(context)->object.assign(data, size);
        },
        [](void* context, const char* data, std::size_t size) {
          static_cast<Output*>(context)->log.assign(data, size);
        });
    if (result != 0) {
      return Status(StatusCode::compile_failed,
                    fmt::format("{} refused the kernel:\n{}", library().version, output.log));
    }
    CompiledBinary binary;
    binary.code = std::move(output.object);
    binary.log = std::move(output.log);
    binary.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return binary;
  }

 private:
  const std::string identity_ = identity_of_libraries();
};

}  // namespace

Expected<const Compiler*> clang_compiler() {
  static const ClangCompiler compiler;
  return static_cast<const Compiler*>(&compiler);
}

Status clang_status() { return library().status; }

}  // namespace saccade
