// Eviction: order, size, and what is never evicted. The clock is the test's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "cache/store.h"
#include "tests/unit/cache_support.h"

namespace saccade::cache {
namespace {

using ::testing::IsEmpty;
using testing::key_of;
using testing::options_in;
using testing::TemporaryDirectory;

constexpr std::int64_t kHour = 3600;
constexpr std::size_t kCodeBytes = 20000;

class CacheTrim : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open(std::int64_t max_bytes = std::int64_t{1} << 30) {
    Options options = options_in(directory_.path());
    options.max_bytes = max_bytes;
    Hooks hooks = default_hooks();
    hooks.now = [this] { return now_.load(); };
    return open_store(options, hooks);
  }

  /// Incompressible, so that sizes are known.
  std::string noise() {
    std::string bytes(kCodeBytes, '\0');
    for (char& c : bytes) c = static_cast<char>(generator_());
    return bytes;
  }

  void put_each_hour(Store& store, int first, int last) {
    for (int number = first; number < last; ++number) {
      store.put_binary(key_of(number), {noise(), ""}, std::to_string(number));
      now_ += kHour;
    }
    store.flush();
  }

  std::vector<std::string> labels() {
    std::vector<std::string> found;
    for (const Entry& entry : open()->list()) found.push_back(entry.label);
    return found;
  }

  TemporaryDirectory directory_;
  std::mt19937_64 generator_ = testing::seeded_generator();
  std::atomic<std::int64_t> now_{1000 * kHour};
};

TEST_F(CacheTrim, EvictsTheLeastRecentlyUsedFirst) {
  {
    const auto store = open();
    put_each_hour(*store, 0, 10);
  }
  {
    const auto store = open();  // without memory of the first
    ASSERT_TRUE(store->find_binary(key_of(0)).has_value());
    ASSERT_TRUE(store->find_binary(key_of(3)).has_value());
    store->flush();
    EXPECT_GT(*store->trim(5 * 24576 + 65536), 0);
  }
  const auto left = labels();
  EXPECT_THAT(left, ::testing::IsSupersetOf({"0", "3", "9"}));
  EXPECT_THAT(left, ::testing::Not(::testing::Contains("1")));
  EXPECT_THAT(left, ::testing::Not(::testing::Contains("2")));
  EXPECT_THAT(open()->verify(), IsEmpty());
}

TEST_F(CacheTrim, AnAutomaticTrimKeepsTheFileUnderTheLimitAndTheNewestIn) {
  constexpr std::int64_t kLimit = 1 << 20;
  {
    const auto store = open(kLimit);
    put_each_hour(*store, 0, 200);  // 4 MB
    EXPECT_LE(store->statistics().front().binary_bytes, kLimit);
    EXPECT_GE(store->statistics().front().binary_bytes, kLimit / 4);
  }
  EXPECT_LE(static_cast<std::int64_t>(std::filesystem::file_size(directory_ / "cache-v1.db")), kLimit);
  EXPECT_EQ(labels().back(), "199");
}

TEST_F(CacheTrim, KeepsTunedRowsWhateverTheLimit) {
  const auto store = open();
  put_each_hour(*store, 0, 5);
  store->put_tuned("key", {"{}", "{}"}, "tuned");
  store->put_rejected("key", {"reason"}, "rejected");
  store->flush();
  const std::int64_t before = store->statistics().front().binary_bytes;
  EXPECT_GE(*store->trim(0), before);
  const auto after = store->statistics().front();
  EXPECT_EQ(after.binaries, 0);
  EXPECT_EQ(after.rejected, 0);
  EXPECT_EQ(after.tuned, 1);
}

TEST_F(CacheTrim, DropsRejectedRowsOnlyAfterTheLastBinary) {
  const auto store = open();
  put_each_hour(*store, 0, 5);
  store->put_rejected("key", {"reason"}, "rejected");
  EXPECT_GT(*store->trim(2 * 24576 + 65536), 0);
  EXPECT_EQ(store->statistics().front().rejected, 1);
  EXPECT_GT(store->statistics().front().binaries, 0);
}

TEST_F(CacheTrim, FreesNothingWhenTheLimitHolds) {
  const auto store = open();
  put_each_hour(*store, 0, 5);
  EXPECT_EQ(*store->trim(1 << 30), 0);
  EXPECT_EQ(store->statistics().front().binaries, 5);
}

TEST_F(CacheTrim, AnEvictedBinaryStaysValidInTheProcessThatHasIt) {
  const auto store = open();
  put_each_hour(*store, 0, 3);
  ASSERT_TRUE(store->trim(0).ok());
  EXPECT_TRUE(store->find_binary(key_of(1)).has_value());
}

TEST_F(CacheTrim, AHitIsStampedOncePerHour) {
  {
    const auto store = open();
    put_each_hour(*store, 0, 1);
  }
  const auto stamp = [this] { return open()->list().front().last_used; };
  const std::int64_t first = stamp();
  now_ = first + kHour - 1;
  open()->find_binary(key_of(0));
  EXPECT_EQ(stamp(), first);
  now_ = first + 5 * kHour + 10;
  open()->find_binary(key_of(0));
  EXPECT_EQ(stamp(), first + 5 * kHour);
}

TEST_F(CacheTrim, AHitInMemoryIsStampedToo) {
  const auto store = open();
  put_each_hour(*store, 0, 1);
  now_ += 10 * kHour;
  store->find_binary(key_of(0));
  store->flush();
  EXPECT_EQ(open()->list().front().last_used, now_.load());
}

TEST_F(CacheTrim, AStampFromTheFutureIsPutRightByAHit) {
  {
    const auto store = open();
    put_each_hour(*store, 0, 1);
  }
  now_ -= 100 * kHour;
  open()->find_binary(key_of(0));
  EXPECT_EQ(open()->list().front().last_used, now_.load());
}

TEST_F(CacheTrim, ABinaryLargerThanTheCacheDoesNotPushOutTheOthers) {
  const auto store = open(200000);
  put_each_hour(*store, 0, 2);
  std::string large;
  while (large.size() < 300000) large += noise();
  store->put_binary("large", {large, ""}, "large");
  store->flush();
  EXPECT_EQ(store->statistics().front().binaries, 2);
  EXPECT_EQ(store->find_binary("large")->code, large);
}

}  // namespace
}  // namespace saccade::cache
