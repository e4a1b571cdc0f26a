#include "runtime/cuda/nvrtc_search.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

namespace saccade::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

/// Ignored in secure-execution mode (set-user-id programs), where the environment is not the owner's.
std::string environment(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr ? "" : value;
}

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::string path_of_loaded(const char* name) {
  void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return {};
  link_map* map = nullptr;
  std::string path;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name != nullptr) path = map->l_name;
  dlclose(library);
  return path;
}

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The loader's own order: what is loaded already, LD_LIBRARY_PATH, its cache, the default folders.
std::string find_on_loader_path(std::string_view name) {
  const std::string text(name);
  if (std::string loaded = path_of_loaded(text.c_str()); !loaded.empty()) return loaded;
  const std::string folders = environment("LD_LIBRARY_PATH");
  for (std::size_t begin = 0; begin < folders.size();) {
    const std::size_t end = std::min(folders.find_first_of(":;", begin), folders.size());
    const std::string path = folders.substr(begin, end - begin) + "/" + text;
    if (end > begin && is_file(path)) return path;
    begin = end + 1;
  }
  if (std::string cached = path_in_loader_cache(read_file("/etc/ld.so.cache"), name);
      !cached.empty() && is_file(cached)) {
    return cached;
  }
  for (const char* folder : {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"}) {
    if (std::string path = fmt::format("{}/{}", folder, name); is_file(path)) return path;
  }
  return {};
}

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

std::string identity_of_file(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return fmt::format("{} {} {}", fs::path(path).filename().string(), error ? 0 : bytes, build_id_of(path));
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

std::string path_in_loader_cache(std::string_view cache, std::string_view name) {
  // glibc's elf/cache.c and dl-cache.h: an optional old part, then this header, `count` entries and the strings that
  // the entries point to, as offsets from the header.
  constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
  constexpr std::size_t kHeaderBytes = 48, kEntryBytes = 24;
  const std::size_t start = cache.find(kMagic);
  if (start == std::string_view::npos) return {};
  cache.remove_prefix(start);
  if (cache.size() < kHeaderBytes) return {};
  const auto number = [&](std::size_t offset) {
    std::uint32_t value = 0;
    std::memcpy(&value, cache.data() + offset, sizeof value);
    return value;
  };
  const auto text = [&](std::uint32_t offset) -> std::string_view {
    if (offset >= cache.size()) return {};
    const std::size_t end = cache.find('\0', offset);
    return end == std::string_view::npos ? std::string_view() : cache.substr(offset, end - offset);
  };
  constexpr std::uint32_t kX86_64 = 0x0303;  // FLAG_ELF_LIBC6 | FLAG_X8664_LIB64
  const std::uint32_t count = number(kMagic.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t entry = kHeaderBytes + i * kEntryBytes;
    if (entry + kEntryBytes > cache.size()) return {};
    if (number(entry) == kX86_64 && text(number(entry + 4)) == name) return std::string(text(number(entry + 8)));
  }
  return {};
}

std::string build_id_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return {};
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    file.seekg(static_cast<std::streamoff>(header.e_phoff + std::uint64_t(i) * header.e_phentsize));
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof segment)) return {};
    if (segment.p_type != PT_NOTE || segment.p_filesz > 65536) continue;
    std::string notes(segment.p_filesz, '\0');
    file.seekg(static_cast<std::streamoff>(segment.p_offset));
    if (!file.read(notes.data(), static_cast<std::streamsize>(notes.size()))) return {};
    for (std::size_t at = 0; at + sizeof(Elf64_Nhdr) <= notes.size();) {
      Elf64_Nhdr note{};
      std::memcpy(&note, notes.data() + at, sizeof note);
      const std::size_t id = at + sizeof note + (std::size_t{note.n_namesz} + 3) / 4 * 4;
      const std::size_t next = id + (std::size_t{note.n_descsz} + 3) / 4 * 4;
      if (next > notes.size()) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4) {
        const auto* bytes = reinterpret_cast<const unsigned char*>(notes.data() + id);
        return fmt::format("{:02x}", fmt::join(bytes, bytes + note.n_descsz, ""));
      }
      at = next;
    }
  }
  return {};
}

Expected<NvrtcFile> find_nvrtc() {
  Search search;
  if (search.run()) return search.found_;
  return Status::not_found(fmt::format(
      "NVRTC 12.4 or newer was not found; tried {}. Install the CUDA toolkit or PyPI's nvidia-cuda-nvrtc, or set "
      "SACCADE_NVRTC to the library's file",
      fmt::join(search.tried_, ", ")));
}

}  // namespace saccade::cuda
