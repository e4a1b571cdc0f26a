#include "cache/memory_layer.h"

#include <iterator>
#include <utility>

namespace saccade::cache {

std::int64_t MemoryLayer::bytes_of(const Entry& entry) {
  return static_cast<std::int64_t>(entry.key->size() + entry.row->content.size() + entry.row->details.size() +
                                   entry.row->label.size());
}

void MemoryLayer::erase(std::list<Entry>::iterator entry) {
  bytes_ -= bytes_of(*entry);
  index_[static_cast<std::size_t>(entry->table)].erase(*entry->key);
  entries_.erase(entry);
}

bool MemoryLayer::find(Table table, const std::string& key, std::int64_t hour, Entry* entry) {
  const std::lock_guard lock(mutex_);
  const Index& index = index_[static_cast<std::size_t>(table)];
  const auto found = index.find(key);
  if (found == index.end()) return false;
  entries_.splice(entries_.begin(), entries_, found->second);
  *entry = *found->second;
  found->second->last_used = hour;
  return true;
}

void MemoryLayer::put(Entry entry) {
  const std::lock_guard lock(mutex_);
  Index& index = index_[static_cast<std::size_t>(entry.table)];
  if (const auto found = index.find(*entry.key); found != index.end()) erase(found->second);
  bytes_ += bytes_of(entry);
  entries_.push_front(std::move(entry));
  index.emplace(*entries_.front().key, entries_.begin());
  while (bytes_ > max_bytes_ && entries_.size() > 1) erase(std::prev(entries_.end()));
}

std::list<MemoryLayer::Entry> MemoryLayer::snapshot() {
  const std::lock_guard lock(mutex_);
  return entries_;
}

}  // namespace saccade::cache
