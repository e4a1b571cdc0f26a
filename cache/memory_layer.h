// What this process put or found, in memory; the top layer, and the only one when there is no usable folder.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "cache/row.h"

namespace saccade::cache {

class MemoryLayer {
 public:
  struct Entry {
    Table table = Table::binary;
    std::shared_ptr<const std::string> key;
    std::shared_ptr<const Row> row;
    std::string layer;           ///< where it came from: a path, or "memory" when this process put it
    std::int64_t last_used = 0;  ///< Unix seconds, hour granularity
  };

  /// Beyond `max_bytes` the least recently used entries go; the newest one always stays.
  explicit MemoryLayer(std::int64_t max_bytes) : max_bytes_(max_bytes) {}

  /// Stamps the entry with `hour`; `entry.last_used` is the stamp it had before. False when there is none.
  bool find(Table table, const std::string& key, std::int64_t hour, Entry* entry);
  void put(Entry entry);

  std::list<Entry> snapshot();

  void lock() { mutex_.lock(); }  ///< before a fork
  void unlock() { mutex_.unlock(); }

 private:
  using Index = std::unordered_map<std::string_view, std::list<Entry>::iterator>;

  static std::int64_t bytes_of(const Entry& entry);
  void erase(std::list<Entry>::iterator entry);

  const std::int64_t max_bytes_;
  std::mutex mutex_;
  std::int64_t bytes_ = 0;
  std::list<Entry> entries_;                 // most recently used first
  std::array<Index, kTables.size()> index_;  // views into the entries' keys
};

}  // namespace saccade::cache
