// A file that gets its name when it is whole.
#pragma once

#include <string>

#include "base/status.h"

namespace saccade::cache {

/// Made empty beside `path`, under a name of its own and readable by its owner alone; removed unless it was kept.
class TemporaryFile {
 public:
  /// A symbolic link at `path` is followed. Errors: `io_error`, also when something that is no regular file is there.
  static Expected<TemporaryFile> create_beside(const std::string& path);
  TemporaryFile(TemporaryFile&& other) noexcept;
  TemporaryFile& operator=(TemporaryFile&&) = delete;
  TemporaryFile(const TemporaryFile&) = delete;
  ~TemporaryFile();

  const std::string& name() const { return name_; }
  /// Written through to the disk, readable by all, and in the place of what was at `path`.
  Status keep();

 private:
  TemporaryFile(std::string target, std::string name) : target_(std::move(target)), name_(std::move(name)) {}

  std::string target_, name_;  ///< name empty: kept or moved from
};

}  // namespace saccade::cache
