// A read-only pack below the user database. Opened immutable: no lock, no side file, nothing written.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "cache/database.h"
#include "cache/signature.h"

namespace saccade::cache {

class PackLayer {
 public:
  /// A relative path is that of the working directory now.
  explicit PackLayer(const std::string& path);

  /// Checks the file and opens it; the reason when the pack is left out.
  Status open(const TrustedKeys& trusted);
  const std::string& path() const { return path_; }
  bool is_open() const { return usable_; }

  Outcome find(Table table, const KeyHash& hash, Deadline deadline, StoredRow* row);
  /// Runs `work` on a connection of its own.
  Outcome inspect(const std::function<Outcome(Database&)>& work);
  void close();

  void before_fork();
  void after_fork();

 private:
  /// Opens the file that open() checked: one that has taken its name meanwhile is left alone.
  Outcome connect(Deadline deadline, std::unique_ptr<Database>* database) const;

  const std::string path_;
  struct stat checked_{};
  std::atomic<bool> usable_{false};
  std::mutex inspection_mutex_;  // taken before mutex_
  std::timed_mutex mutex_;
  std::unique_ptr<Database> database_;
};

}  // namespace saccade::cache
