// A "worker" that breaks the protocol in the way that SACCADE_TEST_SCRIPT names.
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

constexpr int kChannel = 3;

void say(const std::string& text) {
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t count = send(kChannel, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) std::_Exit(9);
    sent += static_cast<std::size_t>(count);
  }
}

std::string read_line() {
  std::string line;
  char c = 0;
  while (read(kChannel, &c, 1) == 1 && c != '\n') line += c;
  return line;
}

}  // namespace

int main() {
  const char* value = std::getenv("SACCADE_TEST_SCRIPT");
  const std::string script = value == nullptr ? "" : value;
  if (script == "exit_at_once") return 3;
  if (script == "garbage_hello") say("hello, I am no worker\n");
  if (script == "other_version") say("{\"reply\":\"hello\",\"protocol\":999,\"abi\":1,\"version\":\"9.9\"}\n");
  if (script == "endless_line") {
    for (int i = 0; i < 100; ++i) say(std::string(1 << 20, 'x'));
  }
  if (script == "echo") {
    for (std::string line = read_line(); !line.empty(); line = read_line()) say(line + "\n");
    return 0;
  }
  if (script == "descriptors") {
    // The highest descriptor in use, and whether standard input is empty.
    int highest = 0;
    for (int fd = 0; fd < 4096; ++fd) {
      if (dup2(fd, fd) == fd) highest = fd;
    }
    char c = 0;
    say(std::to_string(highest) + (read(0, &c, 1) == 0 ? " empty" : " open") + "\n");
  }
  if (script == "mark") {
    // Whether it is marked as a worker, and whether its standard output leads nowhere.
    const char* mark = std::getenv("SACCADE_TUNING_WORKER");
    struct stat output{}, nowhere{};
    const bool silent = fstat(1, &output) == 0 && stat("/dev/null", &nowhere) == 0 && output.st_rdev == nowhere.st_rdev;
    say(std::string(mark == nullptr ? "0" : mark) + (silent ? " and silent" : " and loud") + "\n");
  }
  // Silent from here on, until the tuner hangs up or kills.
  while (!read_line().empty()) {
  }
  return 0;
}
