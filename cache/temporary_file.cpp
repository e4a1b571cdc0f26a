#include "cache/temporary_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace saccade::cache {
namespace {

Status cannot_be_written(const std::string& path) {
  return Status::io_error(fmt::format("{} cannot be written ({})", path, std::strerror(errno)));
}

}  // namespace

Expected<TemporaryFile> TemporaryFile::create_beside(const std::string& path) {
  std::string target = path;
  struct stat status{};
  if (lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode)) {
    const std::unique_ptr<char, decltype(&std::free)> resolved(realpath(path.c_str(), nullptr), &std::free);
    if (resolved == nullptr) return cannot_be_written(path);
    target = resolved.get();
  }
  if (stat(target.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return Status::io_error(fmt::format("{} is no regular file", path));
  std::string name = target + ".XXXXXX";
  const int descriptor = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) return cannot_be_written(path);
  close(descriptor);
  return TemporaryFile(std::move(target), std::move(name));
}

TemporaryFile::TemporaryFile(TemporaryFile&& other) noexcept
    : target_(std::move(other.target_)), name_(std::exchange(other.name_, {})) {}

TemporaryFile::~TemporaryFile() {
  if (name_.empty()) return;
  std::remove(name_.c_str());
  std::remove((name_ + "-journal").c_str());
}

Status TemporaryFile::keep() {
  const int descriptor = open(name_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return cannot_be_written(target_);
  // Writable by the owner alone, which is what check_pack_file() asks for.
  const bool is_ready = fchmod(descriptor, 0644) == 0 && fsync(descriptor) == 0;
  close(descriptor);
  if (!is_ready || std::rename(name_.c_str(), target_.c_str()) != 0) return cannot_be_written(target_);
  name_.clear();
  return {};
}

}  // namespace saccade::cache
