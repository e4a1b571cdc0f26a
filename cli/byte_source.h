// ByteSource: bounds-checked random access to a file or to memory, and atomic writing of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace saccade::cli {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// What error messages call it: a path.
  virtual const std::string& name() const = 0;
  virtual std::uint64_t size() const = 0;
  /// Fills `destination` from `offset`; an error, which does not name the source, when the range does not lie within it.
  Status read(std::uint64_t offset, std::span<std::byte> destination) const;
  /// An error with the source's name before it; the readers' public functions do so, once.
  Status about(const Status& status) const;

 protected:
  virtual Status read_within(std::uint64_t offset, std::span<std::byte> destination) const = 0;
};

/// A regular file. `not_found` or `io_error` with the system's words; a folder, pipe or device is refused.
Expected<std::unique_ptr<ByteSource>> open_file(const std::string& path);
/// Borrows `bytes`.
std::unique_ptr<ByteSource> open_memory(std::string name, std::span<const std::byte> bytes);

/// Before the work: refuses an output (of `flag`; empty: none) that could not be written after it, or that is one of
/// `others`, which the same command reads or writes. Leaves nothing behind and touches no file that is there.
Status check_output(const std::string& flag, const std::string& output, std::span<const std::string> others);

/// Writes the pieces in order to a temporary file beside `path` and renames it, so that no reader sees half a file. A link
/// stays a link; what is no regular file (a pipe, a device) is written as it is.
Status write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces);
/// A whole text file of at most `max_bytes`.
Expected<std::string> read_text_file(const std::string& path, std::uint64_t max_bytes);

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace saccade::cli
