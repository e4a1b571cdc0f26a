#include "cli/interrupt.h"

#include <csignal>
#include <cstdlib>

#include "cli/output.h"

namespace saccade::cli {
namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

extern "C" void on_interrupt(int) {
  if (flag.exchange(true)) std::_Exit(kExitInterrupted);
}

}  // namespace

void set_up_signals() {
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &action, nullptr);
}

const std::atomic<bool>& interrupted() { return flag; }

}  // namespace saccade::cli
