// The functions of the C interface that look and do not run.
#include <algorithm>

#include "runtime/api/boundary.h"
#include "runtime/explain.h"

using namespace saccade;       // NOLINT(google-build-using-namespace): the C names are global
using namespace saccade::api;  // NOLINT(google-build-using-namespace)

namespace {

constexpr int kDefaultMost = 10;

}  // namespace

extern "C" {

saccade_status saccade_supports(const char* target, const saccade_problem* problem, char** json) {
  return guarded([&]() -> Status {
    SACCADE_TRY(require(target, "target"));
    SACCADE_TRY(require(problem, "problem"));
    SACCADE_TRY(require(json, "json"));
    SACCADE_ASSIGN(const Target known, target_from_name(target));
    return give_text(supports_json(problem->problem, known), json);
  });
}

saccade_status saccade_explain(const char* target, const saccade_problem* problem, const saccade_shape* shape,
                               const saccade_prepare_options* options, int32_t most, char** json) {
  return guarded([&]() -> Status {
    SACCADE_TRY(require(target, "target"));
    SACCADE_TRY(require(problem, "problem"));
    SACCADE_TRY(require(json, "json"));
    SACCADE_ASSIGN(const Target known, target_from_name(target));
    SACCADE_ASSIGN(const Shape known_shape, shape_from(shape));
    SACCADE_ASSIGN(const PrepareOptions known_options, prepare_options_from(options, problem->problem));
    SACCADE_ASSIGN(const std::string text, explain_json(problem->problem, known_shape, known, known_options.bindings,
                                                        most <= 0 ? kDefaultMost : most));
    return give_text(text, json);
  });
}

saccade_status saccade_emit(const char* target, const saccade_problem* problem, const saccade_shape* shape,
                            const char* schedule_json, char** source) {
  return guarded([&]() -> Status {
    SACCADE_TRY(require(target, "target"));
    SACCADE_TRY(require(problem, "problem"));
    SACCADE_TRY(require(source, "source"));
    SACCADE_ASSIGN(const Target known, target_from_name(target));
    SACCADE_ASSIGN(const Shape known_shape, shape_from(shape));
    std::optional<Schedule> schedule;
    if (schedule_json != nullptr) {
      SACCADE_ASSIGN(schedule, schedule_from_json(schedule_json));
    }
    SACCADE_ASSIGN(const std::string text,
                   emit_source(problem->problem, known_shape, known, schedule ? &*schedule : nullptr));
    return give_text(text, source);
  });
}

saccade_status saccade_target(const char* target, char** json) {
  return guarded([&]() -> Status {
    SACCADE_TRY(require(target, "target"));
    SACCADE_TRY(require(json, "json"));
    SACCADE_ASSIGN(const Target known, target_from_name(target));
    return give_text(to_json(known), json);
  });
}

int32_t saccade_cuda_device_count(void) { return cuda_device_count(); }

}  // extern "C"
