// Doubles of the layers that the engine stands on: two families, a compiler, a tuner and a device that count what they
// are asked and fail on request. They are linked in place of generator/family.cpp, runtime/compiler.cpp and tuner/.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/engine.h"

namespace saccade::fakes {

struct Record {
  std::atomic<int> compiles{0}, loads{0}, launches{0}, rankings{0}, tunings{0}, capture_questions{0};
  std::function<Status()> before_compile;  ///< may wait, or give the error of the compile
  Expected<TuneOutcome> tune_outcome = Status::internal("no outcome was set");
  bool capturing = false;
  bool has_compiler = true;
  std::mutex mutex;
  KernelParams last_params{};  ///< of the last launch
  Launch last_launch{};
  Stream last_stream = nullptr;
};
/// Of the test that is running; made anew by reset().
Record& record();
void reset();

/// "fake.fwd": q in f32 or bf16, head_dim up to 256; schedules {"tile": 1..3, "splits": 1..4}, of which tile 2 is
/// predicted fastest and splits above 1 need a workspace. Before it stands "fake.special", which supports nothing.
inline constexpr char kFamily[] = "fake.fwd";
Schedule schedule(std::int64_t tile, std::int64_t splits = 1);

/// What the compiler makes of a source; load() refuses anything else.
std::string code_for(const std::string& source);

std::shared_ptr<const Device> device(Target::Kind kind = Target::Kind::cuda);

}  // namespace saccade::fakes
