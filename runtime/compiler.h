// Compilers: emitted source in, binary out. NVRTC for CUDA, Clang for CPUs. No policy, no cache.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "generator/family.h"
#include "generator/target.h"

namespace saccade {

struct CompiledBinary {
  std::string code;  ///< cubin (CUDA) or relocatable ELF object (CPU)
  std::string log;   ///< the compiler's own words (ptxas -v for CUDA)
  double compile_ms = 0;
  int registers = 0;             ///< CUDA: the largest of its kernels
  std::int64_t spill_bytes = 0;  ///< CUDA: stores + loads
  std::int64_t stack_bytes = 0;  ///< CUDA: local memory frame
  std::int64_t static_shared_bytes = 0;
};

class Compiler {
 public:
  virtual ~Compiler() = default;
  /// Everything about the compiler that may change code: product, version, build. Goes into the binary key.
  virtual std::string identity() const = 0;
  /// The ordered options used for a target. Go into the binary key; hold no absolute path.
  virtual std::vector<std::string> options(const Target& target) const = 0;
  /// Headers are resolved from `embedded_templates()` alone. On failure the message carries the log.
  virtual Expected<CompiledBinary> compile(const std::string& source, const Target& target) const = 0;
};

/// NVRTC (12.4 or newer), opened with dlopen on first use. Search order: $SACCADE_NVRTC (a file), the loader's path
/// (libnvrtc.so.13, .12, .so), $CUDA_HOME and $CUDA_PATH, /usr/local/cuda, PyPI's nvidia/*/lib under the active
/// Python's site-packages. `not_found` lists what was tried.
Expected<const Compiler*> nvrtc_compiler();
/// What it is asked for, whichever build it is.
std::vector<std::string> nvrtc_options(const Target& target);
/// The resolved path of the NVRTC library in use, empty when none was found. It is opened by the first compile.
std::string nvrtc_path();
/// "13.0"; opens the library. The errors of nvrtc_compiler(), and those of a library that cannot be used.
Expected<std::string> nvrtc_version();

/// Clang 19 in libsaccade_clang.so: beside libsaccade.so or in ../lib, or $SACCADE_CLANG (a file). Opened with dlopen
/// by the first compile() and not before: identity() reads the build ids of Clang's and LLVM's files. On a machine without
/// LLVM it is the one of the compiler that Saccade was built with, so that its cached kernels run there; compile() gives
/// `not_found`.
Expected<const Compiler*> clang_compiler();
/// Opens libsaccade_clang.so if need be; `not_found` says what was tried.
Status clang_status();

Expected<const Compiler*> compiler_for(Target::Kind kind);

}  // namespace saccade
