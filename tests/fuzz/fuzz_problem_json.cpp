// Any bytes: an error, or a problem (or schedule) that validates and round-trips.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "generator/problem.h"
#include "generator/schedule.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace saccade;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto problem = problem_from_json(text); problem.ok()) {
    require(validate(*problem).ok(), "a problem that was read does not validate");
    const auto again = problem_from_json(to_json(*problem));
    require(again.ok() && *again == *problem, "a problem does not round-trip");
    require(to_json(*again) == to_json(*problem), "JSON is not canonical");
    require(stable_hash(*again) == stable_hash(*problem), "the hash is not stable");
  }
  if (const auto schedule = schedule_from_json(text); schedule.ok()) {
    const auto again = schedule_from_json(to_json(*schedule));
    require(again.ok() && *again == *schedule, "a schedule does not round-trip");
  }
  return 0;
}
