#include "cache/row.h"

#include <gtest/gtest.h>

#include "tests/unit/cache_support.h"

namespace saccade::cache {
namespace {

Row example_row(std::mt19937_64& generator) {
  return {testing::code_like_bytes(20000, generator), "{\"registers\": 168}", "sm_90a"};
}

TEST(CacheRow, ComesBackAsItWentIn) {
  auto generator = testing::seeded_generator();
  for (const std::size_t size : {0u, 1u, 1023u, 1024u, 5000u, 200000u}) {
    const Row row{testing::code_like_bytes(size, generator), "details", "label"};
    const std::string key = testing::code_like_bytes(size / 2 + 1, generator);
    Row decoded;
    ASSERT_EQ(decode(Table::binary, key, encode(Table::binary, key, row, 1, 2), &decoded), Decoded::ok) << size;
    EXPECT_EQ(decoded.content, row.content);
    EXPECT_EQ(decoded.details, row.details);
    EXPECT_EQ(decoded.label, row.label);
  }
}

TEST(CacheRow, LargeRowsAreCompressedAndSmallOnesStayReadable) {
  auto generator = testing::seeded_generator();
  const Row row = example_row(generator);
  const StoredRow large = encode(Table::binary, "key", row, 1, 2);
  EXPECT_EQ(large.content_codec, static_cast<std::int64_t>(Codec::zstd));
  EXPECT_LT(large.content.size(), row.content.size());
  EXPECT_EQ(encode(Table::tuned, "key", {"{\"tile_m\": 128}", "", ""}, 1, 2).content, "{\"tile_m\": 128}");
}

TEST(CacheRow, IncompressibleContentIsStoredRaw) {
  auto generator = testing::seeded_generator();
  std::string noise(4096, '\0');
  for (char& c : noise) c = static_cast<char>(generator());
  const StoredRow stored = encode(Table::binary, "key", {noise, "", ""}, 1, 2);
  EXPECT_EQ(stored.content_codec, static_cast<std::int64_t>(Codec::raw));
  EXPECT_EQ(stored.content, noise);
}

TEST(CacheRow, AnotherKeyIsToldFromDamage) {
  auto generator = testing::seeded_generator();
  const StoredRow stored = encode(Table::binary, "one key", example_row(generator), 1, 2);
  Row decoded;
  EXPECT_EQ(decode(Table::binary, "another", stored, &decoded), Decoded::other_key);
  EXPECT_EQ(decode(Table::binary, "one keY", stored, &decoded), Decoded::other_key);
}

TEST(CacheRow, ARowOfAnotherTableIsDamaged) {
  auto generator = testing::seeded_generator();
  const StoredRow stored = encode(Table::tuned, "key", example_row(generator), 1, 2);
  Row decoded;
  EXPECT_EQ(decode(Table::binary, "key", stored, &decoded), Decoded::damaged);
}

TEST(CacheRow, AnyFlippedByteOfAnyColumnIsDamage) {
  auto generator = testing::seeded_generator();
  const Row row{testing::code_like_bytes(3000, generator), "{\"registers\": 168}", "sm_90a"};
  const std::string key = testing::code_like_bytes(2000, generator);
  const StoredRow sound = encode(Table::binary, key, row, 1, 2);
  Row decoded;
  for (std::string StoredRow::* column :
       {&StoredRow::checksum, &StoredRow::label, &StoredRow::details, &StoredRow::key, &StoredRow::content}) {
    for (std::size_t i = 0; i < (sound.*column).size(); ++i) {
      StoredRow flipped = sound;
      (flipped.*column)[i] = static_cast<char>((flipped.*column)[i] ^ (1 << (generator() % 8)));
      ASSERT_EQ(decode(Table::binary, key, flipped, &decoded), Decoded::damaged) << i;
    }
  }
  for (std::int64_t StoredRow::* column : {&StoredRow::key_codec, &StoredRow::key_size, &StoredRow::content_codec,
                                           &StoredRow::content_size, &StoredRow::created}) {
    for (int bit = 0; bit < 64; ++bit) {
      StoredRow flipped = sound;
      flipped.*column ^= std::int64_t{1} << bit;
      ASSERT_EQ(decode(Table::binary, key, flipped, &decoded), Decoded::damaged) << bit;
    }
  }
}

TEST(CacheRow, ATruncatedColumnIsDamage) {
  auto generator = testing::seeded_generator();
  const StoredRow sound = encode(Table::binary, "key", example_row(generator), 1, 2);
  Row decoded;
  for (std::string StoredRow::* column : {&StoredRow::checksum, &StoredRow::details, &StoredRow::content}) {
    StoredRow cut = sound;
    (cut.*column).pop_back();
    EXPECT_EQ(decode(Table::binary, "key", cut, &decoded), Decoded::damaged);
    (cut.*column).clear();
    EXPECT_EQ(decode(Table::binary, "key", cut, &decoded), Decoded::damaged);
  }
}

TEST(CacheRow, AHugeSizeWithAValidChecksumIsRefusedBeforeAllocating) {
  // Whoever can write the file can also compute the checksum; the size is still not believed.
  StoredRow hostile = encode(Table::binary, "key", {std::string(5000, 'x'), "", ""}, 1, 2);
  hostile.content_size = std::int64_t{1} << 60;
  hostile.checksum = checksum_of(Table::binary, hostile);
  Row decoded;
  EXPECT_EQ(decode(Table::binary, "key", hostile, &decoded), Decoded::damaged);
  hostile.content_size = -1;
  hostile.checksum = checksum_of(Table::binary, hostile);
  EXPECT_EQ(decode(Table::binary, "key", hostile, &decoded), Decoded::damaged);
}

}  // namespace
}  // namespace saccade::cache
