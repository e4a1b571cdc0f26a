#include "cli/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace saccade::cli {
namespace {

std::string system_error(int error) { return std::strerror(error); }

class FileSource final : public ByteSource {
 public:
  FileSource(std::string path, int descriptor, std::uint64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}
  ~FileSource() override { ::close(descriptor_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  const std::string& name() const override { return path_; }
  std::uint64_t size() const override { return size_; }

 protected:
  Status read_within(std::uint64_t offset, std::span<std::byte> destination) const override {
    while (!destination.empty()) {
      // Linux transfers at most 0x7ffff000 bytes a call.
      const std::size_t step = std::min<std::size_t>(destination.size(), std::size_t{1} << 30);
      const ssize_t got = ::pread(descriptor_, destination.data(), step, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Status::io_error(system_error(errno));
      if (got == 0) return Status::io_error("the file became shorter while it was read");
      destination = destination.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
    return {};
  }

 private:
  std::string path_;
  int descriptor_;
  std::uint64_t size_;
};

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string name, std::span<const std::byte> bytes) : name_(std::move(name)), bytes_(bytes) {}
  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return bytes_.size(); }

 protected:
  Status read_within(std::uint64_t offset, std::span<std::byte> destination) const override {
    if (!destination.empty()) std::memcpy(destination.data(), bytes_.data() + offset, destination.size());
    return {};
  }

 private:
  std::string name_;
  std::span<const std::byte> bytes_;
};

Status write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor, bytes.data(), std::min<std::size_t>(bytes.size(), std::size_t{1} << 30));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Status::io_error(system_error(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

}  // namespace

Status ByteSource::read(std::uint64_t offset, std::span<std::byte> destination) const {
  if (offset > size() || destination.size() > size() - offset)
    return Status::invalid_argument(
        fmt::format("truncated: {} bytes at {} are wanted, the file has {}", destination.size(), offset, size()));
  return read_within(offset, destination);
}

Status ByteSource::about(const Status& status) const {
  return status.ok() ? status : Status(status.code(), fmt::format("{}: {}", name(), status.message()));
}

Expected<std::unique_ptr<ByteSource>> open_file(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not hang before it is refused below.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const auto code = errno == ENOENT ? StatusCode::not_found : StatusCode::io_error;
    return Status(code, fmt::format("{}: {}", path, system_error(errno)));
  }
  struct stat information{};
  if (::fstat(descriptor, &information) != 0 || !S_ISREG(information.st_mode)) {
    ::close(descriptor);
    return Status::invalid_argument(fmt::format("{}: not a regular file", path));
  }
  return std::unique_ptr<ByteSource>(
      std::make_unique<FileSource>(path, descriptor, static_cast<std::uint64_t>(information.st_size)));
}

std::unique_ptr<ByteSource> open_memory(std::string name, std::span<const std::byte> bytes) {
  return std::make_unique<MemorySource>(std::move(name), bytes);
}

namespace {

namespace fs = std::filesystem;

Status cannot_write(const std::string& path, std::string_view why) {
  return Status::io_error(fmt::format("{}: cannot be written: {}", path, why));
}

/// A pipe, a terminal or a device is written as it is: replacing it by a file would destroy it.
bool is_special(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

Status write_special_file(const std::string& path, std::span<const std::span<const std::byte>> pieces) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return cannot_write(path, system_error(errno));
  Status status;
  for (const auto& piece : pieces)
    if (status.ok()) status = write_all(descriptor, piece);
  if (::close(descriptor) != 0 && status.ok()) status = Status::io_error(system_error(errno));
  return status.ok() ? status : cannot_write(path, status.message());
}

/// A file beside `path` that takes its place once it is complete, and is removed otherwise.
class Replacement {
 public:
  static Expected<Replacement> of(const std::string& path) {
    std::error_code error;
    if (fs::is_directory(path, error)) return cannot_write(path, "is a folder");
    Replacement result;
    result.path_ = path;
    // What a symbolic link points at is replaced, not the link.
    if (fs::is_symlink(fs::symlink_status(path, error))) {
      result.path_ = fs::canonical(path, error).string();
      if (error) return cannot_write(path, "is a link to nothing");
    }
    std::string temporary = result.path_ + ".XXXXXX";
    result.descriptor_ = ::mkostemp(temporary.data(), O_CLOEXEC);
    if (result.descriptor_ < 0) return cannot_write(path, system_error(errno));
    result.temporary_ = std::move(temporary);
    return result;
  }
  ~Replacement() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }
  Replacement(Replacement&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::exchange(other.temporary_, {})),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  Replacement& operator=(Replacement&&) = delete;

  Status write(std::span<const std::span<const std::byte>> pieces) {
    for (const auto& piece : pieces) SACCADE_TRY(write_all(descriptor_, piece));
    // mkostemp makes the file private; an output is as readable as any new file.
    const mode_t mask = ::umask(0);
    ::umask(mask);
    if (::fchmod(descriptor_, 0666 & ~mask) != 0) return Status::io_error(system_error(errno));
    if (::close(std::exchange(descriptor_, -1)) != 0) return Status::io_error(system_error(errno));
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return Status::io_error(system_error(errno));
    temporary_.clear();
    return {};
  }

 private:
  Replacement() = default;

  std::string path_, temporary_;
  int descriptor_ = -1;
};

}  // namespace

Status write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces) {
  if (is_special(path)) return write_special_file(path, pieces);
  SACCADE_ASSIGN(Replacement file, Replacement::of(path));
  const Status status = file.write(pieces);
  return status.ok() ? status : cannot_write(path, status.message());
}

Status check_output(const std::string& flag, const std::string& output, std::span<const std::string> others) {
  if (output.empty()) return {};
  for (const std::string& other : others) {
    std::error_code error;
    if (other.empty()) continue;
    const bool same = fs::equivalent(output, other, error) ||
                      fs::absolute(output, error).lexically_normal() == fs::absolute(other, error).lexically_normal();
    if (!same) continue;
    return Status::invalid_argument(
        fmt::format("{} {}: that file is read or written by this command too; give another name", flag, output));
  }
  if (!is_special(output)) return Replacement::of(output).status();
  return ::access(output.c_str(), W_OK) == 0 ? Status() : cannot_write(output, system_error(errno));
}

Expected<std::string> read_text_file(const std::string& path, std::uint64_t max_bytes) {
  SACCADE_ASSIGN(const std::unique_ptr<ByteSource> source, open_file(path));
  if (source->size() > max_bytes)
    return Status::invalid_argument(
        fmt::format("{}: {} bytes, at most {} are allowed here", path, source->size(), max_bytes));
  std::string text(source->size(), '\0');
  SACCADE_TRY(source->about(source->read(0, std::as_writable_bytes(std::span(text)))));
  return text;
}

}  // namespace saccade::cli
