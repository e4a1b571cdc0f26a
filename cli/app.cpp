#include "cli/app.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <new>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/output.h"

namespace saccade::cli {
namespace {

struct Command {
  const char* name;
  Expected<int> (*run)(const Options&);
};
constexpr Command kCommands[] = {
    {"doctor", doctor_command},   {"demo", demo_command},       {"run", run_command},     {"emit", emit_command},
    {"compile", compile_command}, {"tune", tune_command},       {"sweep", sweep_command}, {"report", report_command},
    {"bench", bench_command},     {"explain", explain_command}, {"cache", cache_command},
};

int exit_code(StatusCode code) {
  switch (code) {
    case StatusCode::ok: return kExitOk;
    case StatusCode::invalid_argument: return kExitUsage;
    case StatusCode::unsupported: return kExitUnsupported;
    case StatusCode::cancelled: return kExitInterrupted;
    default: return kExitFailure;
  }
}

int report(const Status& status, bool json) {
  const int code = exit_code(status.code());
  print_error(status.message());
  if (json) {
    print_json({{"error", {{"code", name_of(status.code())}, {"message", status.message()}, {"exit_code", code}}}});
  }
  return code;
}

/// A closed standard stream would give its number to the next file that is opened, and what is printed would land there.
void open_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) return;
  }
}

/// Output that was lost makes a success a failure.
int after_output(int code, bool json) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return code != kExitOk ? code : report(Status::io_error("standard output cannot be written"), json);
}

}  // namespace

int run_app(int argc, char** argv) {
  open_closed_streams();
  set_up_signals();
  Options options;
  // The layers report by Status; what is caught here is the standard library's: no memory, a broken stdout.
  try {
    const Expected<bool> wanted = parse_arguments(argc, argv, options);
    if (!wanted.ok()) return report(wanted.status(), options.json);
    if (!*wanted) return after_output(kExitOk, false);
    set_up_output(options.json);
    const auto* const command = std::find_if(std::begin(kCommands), std::end(kCommands),
                                             [&](const Command& known) { return options.command == known.name; });
    const Expected<int> code = command->run(options);
    if (!code.ok()) return report(code.status(), options.json);
    return interrupted() && *code == kExitOk ? kExitInterrupted : after_output(*code, options.json);
  } catch (const std::bad_alloc&) {
    return report(Status(StatusCode::out_of_memory, "there is not enough memory for this"), options.json);
  } catch (const std::exception& error) {
    return report(Status::internal(error.what()), options.json);
  }
}

}  // namespace saccade::cli
