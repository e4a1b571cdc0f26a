// Doing a thing once for a key, whatever the number of threads that ask.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <new>
#include <string>

#include "base/status.h"

namespace saccade {

enum class Keep : bool { while_running, when_ok };

/// Runs `make` for `key` unless another thread is at it or, with Keep::when_ok, has succeeded; then takes that result.
/// Exceptions become a Status, so that nobody waits for ever.
template <class T>
Expected<T> once(std::mutex& mutex, std::map<std::string, std::shared_future<Expected<T>>>& running,
                 const std::string& key, Keep keep, const std::function<Expected<T>()>& make) {
  std::promise<Expected<T>> promise;
  {
    std::unique_lock lock(mutex);
    if (const auto known = running.find(key); known != running.end()) {
      const std::shared_future<Expected<T>> result = known->second;
      lock.unlock();
      return result.get();
    }
    running.emplace(key, promise.get_future().share());
  }
  Expected<T> result = Status::internal("nothing was made");
  try {
    result = make();
  } catch (const std::bad_alloc&) {
    result = Status(StatusCode::out_of_memory, "out of host memory");
  } catch (const std::exception& error) {
    result = Status::internal(error.what());
  }
  if (keep == Keep::while_running || !result.ok()) {
    const std::unique_lock lock(mutex);
    running.erase(key);
  }
  promise.set_value(result);
  return result;
}

}  // namespace saccade
