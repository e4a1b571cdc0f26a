// The lines that a tuner and its worker exchange: one JSON object a line, requests down, replies and events up.
//
//   down  open      problem, shape, bindings, device, cache          up  setup | error
//         prefetch  schedules                                            (nothing)
//         add       id, schedule, trusted                                phase* added
//         time      ids                                                  (phase sample | failed)* done
//         drop      id                                                   (nothing)
//   A `phase` names what starts now (compile, gate, warm, sample) and for which id, so that a crash or a hang has an
//   owner. The first line up is `hello`. End of file in either direction ends the worker.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "generator/schedule.h"
#include "tuner/measurement.h"
#include "tuner/runner.h"

namespace saccade::tuner::protocol {

inline constexpr int kVersion = 2;
/// No honest line is longer; a longer one means that the other side has lost its mind.
inline constexpr std::size_t kMaxLineBytes = 4u << 20;

/// Table data travels in memory that both processes share; the line says where.
struct WireTable {
  bool has_data = false;
  std::int64_t offset = 0, bytes = 0;
  std::int64_t extent[4] = {}, stride[4] = {};
};

struct Open {
  RunnerProblem problem;  ///< without bindings
  std::vector<double> scalars;
  std::vector<WireTable> tables;
  bool is_cuda = false;
  int ordinal = 0;
  int sm_count = 0;             ///< CUDA; of a green context when it is less than the device's
  int threads = 0;              ///< CPU
  std::string arch;             ///< CPU
  std::string tuning_identity;  ///< of the device; the worker refuses to time on another
  std::string cache_directory;  ///< empty: memory only
};
struct Prefetch {
  std::vector<Schedule> schedules;
};
struct Add {
  int id = 0;
  Schedule schedule;
  bool trusted = false;  ///< passed the gate before the worker was restarted
};
struct Time {
  std::vector<int> ids;
};
struct Drop {
  int id = 0;
};
using Request = std::variant<Open, Prefetch, Add, Time, Drop>;

struct Hello {
  int protocol = kVersion;
  int abi = 0;
  std::string version;
};
struct Setup {
  RunnerSetup setup;
};
enum class Phase : std::uint8_t { compile, gate, warm, sample };
struct PhaseStart {
  Phase phase = Phase::compile;
  int id = 0;
};
struct Added {
  int id = 0;
  AddOutcome outcome;
};
struct Failed {
  Failure failure;
};
struct Done {};
struct Error {
  Status status;
};
using Reply = std::variant<Hello, Setup, PhaseStart, Added, Sample, Failed, Done, Error>;

/// Without the newline.
std::string encode(const Request& request);
std::string encode(const Reply& reply);
/// Any input: what is not a well-formed message is an `invalid_argument` that says why.
Expected<Request> decode_request(std::string_view line);
Expected<Reply> decode_reply(std::string_view line);

const char* name_of(Phase phase);

}  // namespace saccade::tuner::protocol
