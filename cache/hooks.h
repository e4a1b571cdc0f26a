// What tests replace: the hash, the clock, and the verdict on the file system.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cache/key.h"
#include "cache/store.h"

namespace saccade::cache {

struct Hooks {
  std::function<KeyHash(std::string_view key)> hash;
  std::function<std::int64_t()> now;  ///< Unix seconds
  std::function<bool(const std::string& directory)> is_local_file_system;
};

Hooks default_hooks();

/// As `Store::open`.
std::unique_ptr<Store> open_store(const Options& options, Hooks hooks);

}  // namespace saccade::cache
