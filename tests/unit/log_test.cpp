// The logger, in processes of their own: it reads SACCADE_LOG once.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/log.h"

namespace saccade::log {
namespace {

[[noreturn]] void use_with(const char* topics) {
  setenv("SACCADE_LOG", topics, 1);
  info(Topic::tune, "a race");
  warn_once("a fault");
  warn_once("a fault");
  std::exit(0);
}

TEST(Log, SaysWhatItsTopicsAreWhenOneIsUnknown) {
  EXPECT_EXIT(use_with("plan,tunes,x"), ::testing::ExitedWithCode(0),
              "^saccade: warning: SACCADE_LOG has no topic tunes, x; it has plan, cache, tune, compile, stats, all and "
              "off\nsaccade: warning: a fault\n$");
}

TEST(Log, WritesTheTopicsAskedForAndEachWarningOnce) {
  EXPECT_EXIT(use_with("tune,"), ::testing::ExitedWithCode(0), "^saccade: tune: a race\nsaccade: warning: a fault\n$");
  EXPECT_EXIT(use_with("off"), ::testing::ExitedWithCode(0), "^$");
}

TEST(Log, WorksInDestructorsOfStaticObjectsThatAreOlderThanIt) {
  const auto log_at_exit = [] {
    setenv("SACCADE_LOG", "stats", 1);
    struct Late {
      ~Late() {
        info(Topic::stats, "late");
        warn_once("late");
      }
    };
    static const Late late;
    warn_once("early");
    std::exit(0);
  };
  EXPECT_EXIT(log_at_exit(), ::testing::ExitedWithCode(0),
              "^saccade: warning: early\nsaccade: stats: late\nsaccade: warning: late\n$");
}

}  // namespace
}  // namespace saccade::log
