// Makes a pack: a database that is whole before it has its name, and never written again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "cache/database.h"
#include "cache/store.h"
#include "cache/temporary_file.h"

namespace saccade::cache {

class PackWriter {
 public:
  /// Nothing is at `path` before finish(); what is there stays until then. Errors: `io_error`.
  static Expected<std::unique_ptr<PackWriter>> create(const std::string& path);
  Status add_tuned(const TunedRow& row);
  Status add_binary(const std::string& key, const Binary& binary, std::string_view label);
  Status finish();

 private:
  explicit PackWriter(TemporaryFile file) : file_(std::move(file)) {}
  Status add(Table table, const std::string& key, const Row& row, std::int64_t created);
  Status failed(Outcome outcome) const;

  TemporaryFile file_;
  std::unique_ptr<Database> database_;  ///< closed before the file is removed
};

}  // namespace saccade::cache
