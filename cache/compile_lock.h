// At most one process compiles a key: flock on <directory>/locks/<hash>.
#pragma once

#include <memory>
#include <string>

#include "cache/deadline.h"
#include "cache/key.h"
#include "cache/store.h"
#include "cache/writer.h"

namespace saccade::cache {

/// Null when the lock cannot be had by the deadline. `writer` is flushed before the lock is released.
std::unique_ptr<CompileLock> take_compile_lock(const std::string& directory, const KeyHash& hash, Deadline deadline,
                                               std::shared_ptr<Writer> writer);

}  // namespace saccade::cache
