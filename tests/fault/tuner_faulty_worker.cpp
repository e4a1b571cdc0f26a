// A worker whose candidates misbehave on demand, built for the tests only. The environment says how and which:
//   SACCADE_TEST_FAULT=crash|hang|wrong|compile|killed|late_crash|late_hang   the fault
//   SACCADE_TEST_FAULT_MATCH="\"tile_m\":64"                            candidates whose JSON holds this text
// The `late` ones pass the gate and misbehave while they are timed.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "tuner/worker.h"

namespace {

using saccade::Schedule;
using saccade::Status;
using saccade::StatusCode;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class Faults : public saccade::tuner::RunHooks {
 public:
  Status before_compile(const Schedule& schedule) override {
    if (fault_ == "compile" && matches(schedule))
      return Status(StatusCode::compile_failed, "made to fail\nerror: line 7");
    return Status();
  }
  void before_run(const Schedule& schedule) override {
    if (!matches(schedule)) return;
    // Two runs in the gate and one to warm up come before the first that is timed.
    const bool is_timed = ++runs_[schedule] > 3;
    if (fault_ == "crash" || (fault_ == "late_crash" && is_timed)) std::raise(SIGSEGV);
    if (fault_ == "killed") std::raise(SIGKILL);
    if (fault_ == "hang" || (fault_ == "late_hang" && is_timed)) hang();
  }
  void after_gate_run(const Schedule& schedule, std::vector<double>& o) override {
    if (fault_ == "wrong" && matches(schedule) && !o.empty()) o[o.size() / 2] += 1;
  }

 private:
  [[noreturn]] static void hang() {
    while (true) pause();
  }
  bool matches(const Schedule& schedule) const {
    return !match_.empty() && saccade::to_json(schedule).find(match_) != std::string::npos;
  }
  std::string fault_ = environment("SACCADE_TEST_FAULT");
  std::string match_ = environment("SACCADE_TEST_FAULT_MATCH");
  std::map<Schedule, int> runs_;
};

}  // namespace

int main() {
  saccade::tuner::prepare_worker_process();
  Faults faults;
  saccade::tuner::WorkerOptions options;
  options.hooks = &faults;
  return saccade::tuner::serve_worker(options);
}
