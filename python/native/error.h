// Failures of the library as exceptions of saccade.errors.
#pragma once

#include <saccade/saccade.h>

#include <string>

namespace saccade::python {

/// Raises the exception class of saccade.errors that belongs to `status`.
[[noreturn]] void raise(saccade_status status, const std::string& message);
[[noreturn]] void raise_invalid(const std::string& message);

/// Raises saccade_last_error() unless `status` is SACCADE_OK.
inline void check(saccade_status status) {
  if (status != SACCADE_OK) raise(status, saccade_last_error());
}

}  // namespace saccade::python
