#include "runtime/library_file.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace saccade {
namespace {

namespace fs = std::filesystem;

std::string path_of_loaded(const char* name) {
  void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return {};
  link_map* map = nullptr;
  std::string path;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name != nullptr) path = map->l_name;
  dlclose(library);
  return path;
}

/// At once: the loader's cache, character by character, would take a tenth of a millisecond of a warm start.
std::string read_file(const char* path) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  std::string text(error ? 0 : bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace

std::string environment(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr ? "" : value;
}

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

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

std::string identity_of_file(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return fmt::format("{} {} {}", fs::path(path).filename().string(), error ? 0 : bytes, build_id_of(path));
}

}  // namespace saccade
