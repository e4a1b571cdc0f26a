#include <gtest/gtest.h>

#include <set>

#include "cache/key.h"
#include "cache/store.h"

namespace saccade::cache {
namespace {

TEST(CacheKey, FieldsThatRunIntoEachOtherAreApart) {
  // Every way to cut the same characters into names and values is another key.
  std::set<std::string> keys;
  const std::string text = "abcdef";
  for (std::size_t name = 0; name <= text.size(); ++name)
    keys.insert(KeyBuilder().add(text.substr(0, name), text.substr(name)).bytes());
  for (std::size_t cut = 0; cut <= text.size(); ++cut)
    keys.insert(KeyBuilder().add(text.substr(0, cut), "").add(text.substr(cut), "").bytes());
  EXPECT_EQ(keys.size(), 2 * (text.size() + 1));
}

TEST(CacheKey, TwoFieldsDifferFromOneThatHoldsTheirBytes) {
  const std::string second = KeyBuilder().add("b", "2").bytes();
  const std::string both = KeyBuilder().add("a", "1").add("b", "2").bytes();
  EXPECT_NE(KeyBuilder().add("a", "1" + second).bytes(), both);
  EXPECT_NE(KeyBuilder().add("a1" + second, "").bytes(), both);
}

TEST(CacheKey, OrderMatters) {
  EXPECT_NE(KeyBuilder().add("a", "1").add("b", "2").bytes(), KeyBuilder().add("b", "2").add("a", "1").bytes());
}

TEST(CacheKey, AnIntegerIsNotItsBytesOrItsText) {
  const std::string number = KeyBuilder().add("n", 49).bytes();
  EXPECT_NE(number, KeyBuilder().add("n", "49").bytes());
  EXPECT_NE(number, KeyBuilder().add("n", "1").bytes());
  EXPECT_NE(number, KeyBuilder().add("n", std::string("1\0\0\0\0\0\0\0", 8)).bytes());
}

TEST(CacheKey, EmptyAndMissingAreApart) {
  EXPECT_NE(KeyBuilder().bytes(), KeyBuilder().add("", "").bytes());
  EXPECT_NE(KeyBuilder().add("", "").bytes(), KeyBuilder().add("", "").add("", "").bytes());
}

TEST(CacheKey, NegativeAndLargeIntegersAreKept) {
  std::set<std::string> keys;
  for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, INT64_MIN, INT64_MAX, std::int64_t{1} << 32})
    keys.insert(KeyBuilder().add("n", value).bytes());
  EXPECT_EQ(keys.size(), 5u);
}

TEST(CacheKey, HashIsBlake2b160) {
  // RFC 7693's function with a 20-byte digest, as `b2sum -l 160` gives it for "abc".
  EXPECT_EQ(to_hex(hash_key("abc")), "384264f676f39536840523f284921cdc68b6846b");
}

TEST(CacheKey, ChecksumSeesBytesMovingBetweenParts) {
  EXPECT_NE(Checksum().add("ab").add("c").finish(), Checksum().add("a").add("bc").finish());
  EXPECT_NE(Checksum().add("").add("abc").finish(), Checksum().add("abc").add("").finish());
  EXPECT_EQ(Checksum().add("ab").add("c").finish(), Checksum().add("ab").add("c").finish());
}

}  // namespace
}  // namespace saccade::cache
