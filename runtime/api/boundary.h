// The border between the C interface and the library: no exception crosses it, structs of other versions are read
// safely, and each thread keeps the text of its last failure.
#pragma once

#include <saccade/saccade.h>

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "generator/problem.h"
#include "runtime/engine.h"

struct saccade_engine {
  std::shared_ptr<saccade::Engine> engine;
  std::shared_ptr<const saccade::Device> cpu;  ///< null when this machine cannot run CPU kernels
  saccade::Status cpu_status;
};
struct saccade_problem {
  saccade::Problem problem;
};
struct saccade_plan {
  std::shared_ptr<const saccade::Plan> plan;
};

namespace saccade::api {

/// Remembers the message of a failure for saccade_last_error; returns the C status. Never throws.
saccade_status finish(const Status& status) noexcept;

/// The same for what was thrown.
saccade_status finish_out_of_memory() noexcept;
saccade_status finish_exception(const char* what) noexcept;

/// Runs `body` (which returns Status) and turns what it throws into a status.
template <class Body>
saccade_status guarded(Body&& body) noexcept {
  try {
    return finish(body());
  } catch (const std::bad_alloc&) {
    return finish_out_of_memory();
  } catch (const std::exception& error) {
    return finish_exception(error.what());
  } catch (...) {
    return finish_exception("an exception of unknown type");
  }
}

/// `invalid_argument` when `pointer` is null.
Status require(const void* pointer, const char* name);

/// Whether a struct that says it has `bytes` may be read as one of `known_bytes`.
Status check_struct(const void* given, std::size_t bytes, std::size_t first_bytes, std::size_t known_bytes,
                    const char* name);

/// A copy of `given` as this library knows the struct: fields that the caller's version lacks are zero, and fields that
/// this version lacks must be zero. `first_bytes` is the struct's size in the first version that had it.
template <class Struct>
Expected<Struct> read_struct(const Struct* given, std::size_t first_bytes, const char* name) {
  SACCADE_TRY(require(given, name));
  std::size_t bytes = 0;
  std::memcpy(&bytes, given, sizeof bytes);
  SACCADE_TRY(check_struct(given, bytes, first_bytes, sizeof(Struct), name));
  Struct known{};
  std::memcpy(&known, given, bytes < sizeof known ? bytes : sizeof known);
  return known;
}

/// A copy for the caller to give to saccade_text_free.
Status give_text(const std::string& text, char** destination);

Expected<Shape> shape_from(const saccade_shape* shape);
Expected<Problem> problem_from(const saccade_problem_options& options);
Expected<PrepareOptions> prepare_options_from(const saccade_prepare_options* options, const Problem& problem);

}  // namespace saccade::api
