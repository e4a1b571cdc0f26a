#include "runtime/cuda/nvrtc_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/library_file.h"

namespace saccade::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

std::vector<std::string> expand(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  std::reverse(paths.begin(), paths.end());  // newer versions sort last
  return paths;
}

/// Prefixes of the Python that is active in this environment; links are kept, since they lead out of a virtual one.
std::vector<std::string> python_prefixes() {
  std::vector<std::string> prefixes;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (std::string value = environment(name); !value.empty()) prefixes.push_back(std::move(value));
  }
  const std::string folders = environment("PATH");
  for (std::size_t begin = 0; begin < folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const fs::path folder = folders.substr(begin, end - begin);
    if (!folder.empty() && is_file(folder / "python3")) {
      prefixes.push_back(folder.parent_path());
      break;
    }
    begin = end + 1;
  }
  return prefixes;
}

/// "12.4" of the one libnvrtc-builtins.so.12.4 beside `path`; nothing when there is none, or more than one.
std::optional<std::pair<int, int>> version_beside(const std::string& path) {
  const std::vector<std::string> builtins = expand(fs::path(path).parent_path() / "libnvrtc-builtins.so.*.*");
  std::optional<std::pair<int, int>> version;
  for (const std::string& file : builtins) {
    int major = 0, minor = 0;
    const std::string name = fs::path(file).filename();
    if (std::sscanf(name.c_str(), "libnvrtc-builtins.so.%d.%d", &major, &minor) != 2) continue;
    if (version && *version != std::pair(major, minor)) return std::nullopt;
    version = {major, minor};
  }
  return version;
}

std::string identity_of(const std::string& path) {
  std::string identity = identity_of_file(path);
  std::vector<std::string> builtins = expand(fs::path(path).parent_path() / "libnvrtc-builtins.so.*");
  for (const std::string& file : builtins) identity += "; " + identity_of_file(file);
  return identity;
}

class Search {
 public:
  /// True when `path` is the library to use.
  bool take(const std::string& path) {
    if (path.empty() || !is_file(path)) return false;
    if (const auto version = version_beside(path); version && *version < std::pair(12, 4)) {
      tried_.push_back(fmt::format("{} (NVRTC {}.{}: too old)", path, version->first, version->second));
      return false;
    }
    found_ = NvrtcFile{path, identity_of(path)};
    return true;
  }

  bool take_from_loader() {
    for (const std::string_view name : kNames) {
      if (take(find_on_loader_path(name))) return true;
    }
    tried_.emplace_back("the loader's path");
    return false;
  }

  bool take_from_folder(const std::string& folder) {
    for (const std::string_view name : kNames) {
      if (take(fmt::format("{}/{}", folder, name))) return true;
    }
    tried_.push_back(folder);
    return false;
  }

  bool take_from_python(const std::string& prefix) {
    const std::string pattern = prefix + "/lib/python3*/*-packages/nvidia/*/lib";
    for (const std::string& folder : expand(pattern)) {
      if (expand(folder + "/libnvrtc.so*").empty()) continue;
      if (take_from_folder(folder)) return true;
    }
    tried_.push_back(pattern);
    return false;
  }

  bool run() {
    if (const std::string file = environment("SACCADE_NVRTC"); !file.empty()) {
      if (take(file)) return true;
      tried_.push_back(fmt::format("$SACCADE_NVRTC = {} (not a file, or too old)", file));
      return false;  // The user said which: another one would be a surprise.
    }
    if (take_from_loader()) return true;
    for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
      if (const std::string home = environment(variable); !home.empty() && take_from_folder(home + "/lib64"))
        return true;
    }
    if (take_from_folder("/usr/local/cuda/lib64")) return true;
    const std::vector<std::string> prefixes = python_prefixes();
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [&](const std::string& prefix) { return take_from_python(prefix); });
  }

  NvrtcFile found_;
  std::vector<std::string> tried_;
};

}  // namespace

Expected<NvrtcFile> find_nvrtc() {
  Search search;
  if (search.run()) return search.found_;
  return Status::not_found(fmt::format(
      "NVRTC 12.4 or newer was not found; tried {}. Install the CUDA toolkit or PyPI's nvidia-cuda-nvrtc, or set "
      "SACCADE_NVRTC to the library's file",
      fmt::join(search.tried_, ", ")));
}

}  // namespace saccade::cuda
