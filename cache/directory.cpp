#include "cache/directory.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

namespace saccade::cache {
namespace {

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

/// mkdir -p with mode 0700 for what is created. Another process may create the same parts meanwhile.
int create_directories(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      // A read-only parent that exists may answer EROFS or EACCES before EEXIST.
      struct stat status{};
      const int error = errno;
      if (stat(part.c_str(), &status) != 0) return error;
    }
    if (slash == std::string::npos) return 0;
  }
}

std::optional<struct stat> status_of_this_library() {
  Dl_info info{};
  struct stat status{};
  const void* const here = reinterpret_cast<const void*>(&status_of_this_library);
  if (dladdr(here, &info) == 0 || info.dli_fname == nullptr || stat(info.dli_fname, &status) != 0) return {};
  return status;
}

Status unsafe(const std::string& path, std::string_view reason, std::string_view remedy) {
  return {StatusCode::io_error, fmt::format("{} {}; {}", path, reason, remedy)};
}

}  // namespace

std::string absolute_path(const std::string& path) {
  if (path.empty() || path.front() == '/') return path;
  std::array<char, PATH_MAX> current{};
  if (getcwd(current.data(), current.size()) == nullptr) return {};
  return fmt::format("{}/{}", current.data(), path);
}

std::string environment(const char* name) {
  if (getauxval(AT_SECURE) != 0) return {};
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string choose_directory(const std::string& requested) {
  if (!requested.empty()) return without_trailing_slashes(absolute_path(requested));
  if (const std::string own = environment("SACCADE_CACHE_DIR"); !own.empty())
    return without_trailing_slashes(absolute_path(own));
  // The XDG specification says that a relative path there is invalid and to be ignored.
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty() && xdg.front() == '/')
    return without_trailing_slashes(xdg) + "/saccade";
  if (const std::string home = environment("HOME"); !home.empty() && home.front() == '/')
    return without_trailing_slashes(home) + "/.cache/saccade";
  return {};
}

Expected<std::string> prepare_directory(const std::string& directory, bool create) {
  if (create) {
    if (const int error = create_directories(directory); error != 0)
      return unsafe(directory, fmt::format("cannot be created ({})", std::strerror(error)),
                    "set SACCADE_CACHE_DIR to a folder of your own");
  }
  const int descriptor = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0) {
    const char* reason = errno == ELOOP || errno == ENOTDIR ? "is a symbolic link or no folder" : "cannot be opened";
    return unsafe(directory, reason, "give the folder itself");
  }
  struct stat checked{};
  const int result = fstat(descriptor, &checked);
  close(descriptor);
  if (result != 0) return unsafe(directory, "cannot be examined", "set SACCADE_CACHE_DIR to a folder of your own");
  if (checked.st_uid != geteuid())
    return unsafe(directory, "belongs to another user", "set SACCADE_CACHE_DIR to a folder of your own");
  if ((checked.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return unsafe(directory, "can be written by others", "chmod go-w it, or remove it if others had access");

  const std::unique_ptr<char, decltype(&std::free)> resolved(realpath(directory.c_str(), nullptr), &std::free);
  struct stat status{};
  if (resolved == nullptr || lstat(resolved.get(), &status) != 0 || status.st_dev != checked.st_dev ||
      status.st_ino != checked.st_ino)
    return unsafe(directory, "changed while it was examined", "try again");
  return std::string(resolved.get());
}

Status check_pack_file(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0)
    return unsafe(path, fmt::format("cannot be examined ({})", std::strerror(errno)), "give the path of a pack");
  if (!S_ISREG(status.st_mode)) return unsafe(path, "is no regular file", "give the path of a pack");
  const auto library = status_of_this_library();
  const bool trusted_owner =
      status.st_uid == 0 || status.st_uid == geteuid() || (library && library->st_uid == status.st_uid);
  if (!trusted_owner) return unsafe(path, "belongs to another user", "copy it to a place of your own");
  // Package managers that leave their files to a group leave this library to it as well: who may write that needs no pack.
  const bool as_library = library && library->st_uid == status.st_uid && library->st_gid == status.st_gid &&
                          (library->st_mode & status.st_mode & S_IWGRP) != 0;
  if ((status.st_mode & S_IWOTH) != 0 || ((status.st_mode & S_IWGRP) != 0 && !as_library))
    return unsafe(path, "can be written by others", "chmod go-w it after checking it");
  return {};
}

bool is_on_local_file_system(const std::string& directory) {
  // Linux's magic numbers that <linux/magic.h> does not carry: fs/zfs, fs/jfs, fs/bcachefs; XFS got its name in 5.18.
  constexpr unsigned long kZfs = 0x2FC12FC1, kJfs = 0x3153464A, kBcachefs = 0xCA451A4E, kXfs = 0x58465342;
  constexpr std::array<unsigned long, 13> kLocal = {EXT4_SUPER_MAGIC,
                                                    BTRFS_SUPER_MAGIC,
                                                    TMPFS_MAGIC,
                                                    OVERLAYFS_SUPER_MAGIC,
                                                    F2FS_SUPER_MAGIC,
                                                    REISERFS_SUPER_MAGIC,
                                                    ECRYPTFS_SUPER_MAGIC,
                                                    RAMFS_MAGIC,
                                                    MSDOS_SUPER_MAGIC,
                                                    kZfs,
                                                    kJfs,
                                                    kBcachefs,
                                                    kXfs};
  struct statfs status{};
  if (statfs(directory.c_str(), &status) != 0) return false;
  // f_type is signed on some architectures; the magic numbers are 32 bits.
  const unsigned long type = static_cast<std::uint32_t>(status.f_type);
  for (const unsigned long local : kLocal)
    if (type == local) return true;
  return false;
}

}  // namespace saccade::cache
