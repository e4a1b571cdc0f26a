// The writer thread, with a sink of the test's.
#include <gtest/gtest.h>

#include <atomic>
#include <new>

#include "cache/writer.h"

namespace saccade::cache {
namespace {

TEST(CacheWriter, AThrowingSinkCostsItsBatchAndNothingElse) {
  std::atomic<int> calls{0}, written{0};
  Writer writer([&](const std::vector<WriteTask>& tasks) {
    if (++calls == 1) throw std::bad_alloc();
    written += static_cast<int>(tasks.size());
  });
  ASSERT_TRUE(writer.enqueue({}));
  writer.flush();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(written, 0);
  ASSERT_TRUE(writer.enqueue({}));
  EXPECT_TRUE(writer.flush(deadline_in(std::chrono::seconds{60})));
  EXPECT_EQ(written, 1);
}

}  // namespace
}  // namespace saccade::cache
