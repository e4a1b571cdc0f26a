// The worker process and its channel, against workers that break every rule.
#include "tuner/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tuner/remote_runner.h"
#include "tuner/worker_path.h"

namespace saccade::tuner {
namespace {

class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~ScopedEnvironment() { unsetenv(name_); }

 private:
  const char* name_;
};

std::unique_ptr<WorkerProcess> start(const std::string& script) {
  const ScopedEnvironment environment("SACCADE_TEST_SCRIPT", script);
  Expected<std::unique_ptr<WorkerProcess>> worker = WorkerProcess::start(SCRIPTED_WORKER);
  EXPECT_TRUE(worker.ok()) << worker.status().message();
  return worker.ok() ? std::move(worker).value() : nullptr;
}

Status open(const std::string& script, double patience_ms) {
  const ScopedEnvironment environment("SACCADE_TEST_SCRIPT", script);
  WorkerSettings settings;
  settings.executable = SCRIPTED_WORKER;
  settings.watchdog.open_ms = settings.watchdog.hello_ms = patience_ms;
  return RemoteRunner::open(std::move(settings), Limits()).status();
}

bool has_children() { return waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD; }

int open_descriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(WorkerProcess, LinesOfAnySizeComeBackWhole) {
  const auto worker = start("echo");
  for (const std::size_t size : {std::size_t{1}, std::size_t{16384}, std::size_t{300'000}}) {
    const std::string sent(size, 'a');
    ASSERT_TRUE(worker->send(sent).ok());
    std::string received;
    ASSERT_EQ(worker->receive(10'000, received), LineReader::Event::line);
    EXPECT_EQ(received, sent);
  }
}

TEST(WorkerProcess, LeavesNoZombieAndNoDescriptor) {
  const int before = open_descriptors();
  for (int i = 0; i < 20; ++i) start(i % 2 == 0 ? "echo" : "exit_at_once");
  EXPECT_FALSE(has_children());
  EXPECT_EQ(open_descriptors(), before);
}

TEST(WorkerProcess, ReportsHowTheWorkerEnded) {
  const auto worker = start("exit_at_once");
  std::string line;
  EXPECT_EQ(worker->receive(10'000, line), LineReader::Event::end);
  EXPECT_EQ(worker->kill_and_describe(), "exit code 3");
}

TEST(WorkerProcess, WritingToADeadWorkerIsAnErrorAndNoSignal) {
  const auto worker = start("exit_at_once");
  std::string line;
  ASSERT_EQ(worker->receive(10'000, line), LineReader::Event::end);
  EXPECT_FALSE(worker->send("anybody there?").ok());
}

TEST(WorkerProcess, WorksWhenTheHostIgnoresSigchld) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  {
    const auto worker = start("exit_at_once");
    std::string line;
    EXPECT_EQ(worker->receive(10'000, line), LineReader::Event::end);
    EXPECT_NE(worker->kill_and_describe(), "");
  }
  {
    const auto worker = start("silent");
  }
  EXPECT_FALSE(has_children());
  std::signal(SIGCHLD, before);
}

TEST(WorkerProcess, InheritsNoDescriptorOfTheHost) {
  const int leaky = fcntl(0, F_DUPFD, 200);  // without close-on-exec, as hosts do
  const auto worker = start("descriptors");
  std::string line;
  ASSERT_EQ(worker->receive(10'000, line), LineReader::Event::line);
  EXPECT_EQ(line, "4 empty");
  close(leaky);
}

TEST(WorkerProcess, AMissingExecutableIsAnErrorThatNamesIt) {
  const auto worker = WorkerProcess::start("/no/such/worker");
  ASSERT_FALSE(worker.ok());
  EXPECT_NE(worker.status().message().find("/no/such/worker"), std::string::npos);
}

TEST(WorkerProcess, AnEndlessLineIsCutOff) {
  const auto worker = start("endless_line");
  std::string line;
  EXPECT_EQ(worker->receive(10'000, line), LineReader::Event::too_long);
}

TEST(RemoteRunner, SilentWorkerIsGivenUp) {
  const Status status = open("silent", 200);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("no answer within 0.2 s"), std::string::npos) << status.message();
  EXPECT_FALSE(has_children());
}

TEST(RemoteRunner, AProgramThatIsNoWorkerAndNeverEndsIsEndedAndNamed) {
  const std::string program = "/usr/bin/yes";
  if (access(program.c_str(), X_OK) != 0) GTEST_SKIP() << program << " is not here";
  WorkerSettings settings;
  settings.executable = program;
  settings.watchdog.hello_ms = 200;
  const Status status = RemoteRunner::open(std::move(settings), Limits()).status();
  EXPECT_EQ(status.code(), StatusCode::not_found);
  EXPECT_NE(status.message().find(program + " did not answer as a tuning worker does"), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("SACCADE_WORKER"), std::string::npos) << status.message();
  EXPECT_FALSE(has_children());
}

TEST(WorkerProcess, IsNotStartedByAWorker) {
  {
    const auto worker = start("mark");
    std::string line;
    ASSERT_EQ(worker->receive(10'000, line), LineReader::Event::line);
    EXPECT_EQ(line, "1 and silent");
  }
  // As the host would find itself, started because SACCADE_WORKER names it.
  const ScopedEnvironment environment(kWorkerMark, "1");
  const auto worker = WorkerProcess::start(SCRIPTED_WORKER);
  ASSERT_FALSE(worker.ok());
  EXPECT_EQ(worker.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(worker.status().message().find("SACCADE_WORKER names the wrong program"), std::string::npos);
  EXPECT_FALSE(has_children());
}

TEST(RemoteRunner, GarbageInsteadOfAHelloIsAnError) {
  const Status status = open("garbage_hello", 5'000);
  EXPECT_NE(status.message().find("malformed message"), std::string::npos) << status.message();
}

TEST(RemoteRunner, AWorkerOfAnotherVersionIsRefused) {
  const Status status = open("other_version", 5'000);
  EXPECT_EQ(status.code(), StatusCode::not_found);
  EXPECT_NE(status.message().find("another version"), std::string::npos) << status.message();
}

TEST(RemoteRunner, AWorkerThatDiesAtOnceIsAnErrorWithItsExitCode) {
  const Status status = open("exit_at_once", 5'000);
  EXPECT_NE(status.message().find("exit code 3"), std::string::npos) << status.message();
}

TEST(RemoteRunner, CancelEndsTheWait) {
  const ScopedEnvironment environment("SACCADE_TEST_SCRIPT", "silent");
  const std::atomic<bool> cancel{true};
  WorkerSettings settings;
  settings.executable = SCRIPTED_WORKER;
  Limits limits;
  limits.cancel = &cancel;
  EXPECT_EQ(RemoteRunner::open(std::move(settings), limits).status().code(), StatusCode::cancelled);
}

TEST(FindWorker, EnvironmentNamesTheFileAndNothingElseIsTried) {
  {
    const ScopedEnvironment environment("SACCADE_WORKER", SCRIPTED_WORKER);
    const Expected<std::string> found = find_worker();
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, SCRIPTED_WORKER);
  }
  const ScopedEnvironment environment("SACCADE_WORKER", "/no/such/worker");
  const Expected<std::string> found = find_worker();
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.status().code(), StatusCode::not_found);
  EXPECT_NE(found.status().message().find("/no/such/worker"), std::string::npos);
}

TEST(FindWorker, AFolderIsNoWorker) {
  const ScopedEnvironment environment("SACCADE_WORKER", "/tmp");
  EXPECT_FALSE(find_worker().ok());
}

}  // namespace
}  // namespace saccade::tuner
