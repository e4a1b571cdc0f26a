// Where NVRTC is. Finding is apart from opening: the library has 100 MB, and opening it costs 8 ms warm and hundreds
// cold, which a start from the cache must not pay. What binary keys need of it (which build it is) is read from the
// file.
#pragma once

#include <string>

#include "base/status.h"

namespace saccade::cuda {

struct NvrtcFile {
  std::string path;      ///< absolute, or a bare name that only the loader can resolve
  std::string identity;  ///< name, size and build id of the library and its builtins; no directory
};

/// The search order of nvrtc_compiler() in runtime/compiler.h. `not_found` lists what was tried.
Expected<NvrtcFile> find_nvrtc();

}  // namespace saccade::cuda
