// Points in time after which the cache gives up waiting, and the waits it allows itself.
#pragma once

#include <chrono>

namespace saccade::cache {

using Deadline = std::chrono::steady_clock::time_point;

inline constexpr std::chrono::milliseconds kReadTimeout{250};   ///< a lookup: the caller waits for it
inline constexpr std::chrono::milliseconds kWriteTimeout{250};  ///< a batch of writes, on the writer thread
inline constexpr std::chrono::milliseconds kOpenTimeout{1000};  ///< a cold start of many processes creates one file

inline Deadline deadline_in(std::chrono::milliseconds duration) { return std::chrono::steady_clock::now() + duration; }

}  // namespace saccade::cache
