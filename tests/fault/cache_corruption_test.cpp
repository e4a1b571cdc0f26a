// Damaged, foreign and hostile files: a miss or the right bytes, never anything else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cache/store.h"
#include "tests/fault/cache_child.h"
#include "tests/unit/cache_support.h"

namespace saccade::cache {
namespace {

using testing::execute_sql;
using testing::files_starting_with;
using ::testing::IsEmpty;
using testing::key_of;
using ::testing::Not;
using testing::options_in;
using testing::read_file;
using ::testing::SizeIs;
using testing::TemporaryDirectory;
using testing::write_file;

constexpr int kRows = 12;

std::string code_of(int number) {
  std::mt19937_64 generator(static_cast<std::uint64_t>(number) + 1);
  return testing::code_like_bytes(static_cast<std::size_t>(200 + 1500 * number), generator);
}

void fill(Store& store) {
  for (int number = 0; number < kRows; ++number) {
    store.put_binary(key_of(number), {code_of(number), "{}"}, "binary");
    store.put_tuned(key_of(number), {"{\"tile_m\": " + std::to_string(number) + "}", "{}"}, "tuned");
    store.put_rejected(key_of(number), {"reason " + std::to_string(number)}, "rejected");
  }
}

struct Image {
  std::string database, log;
};

/// A database in its folder, closed (all in one file) or as a crash would leave it (rows in the log).
Image make_image(bool as_after_crash) {
  const TemporaryDirectory directory(testing::fast_directory());
  const std::string path = directory / "cache-v1.db";
  auto store = Store::open(options_in(directory.path()));
  fill(*store);
  store->flush();
  if (as_after_crash) {
    // Copied by another process: closing the file here would drop the locks that SQLite holds on it.
    EXPECT_EQ(testing::run_in_child([&] {
                std::filesystem::copy_file(path, directory / "copy");
                std::filesystem::copy_file(path + "-wal", directory / "copy-wal");
                return 0;
              }).exit_code,
              0);
    return {read_file(directory / "copy"), read_file(directory / "copy-wal")};
  }
  store.reset();
  return {read_file(path), ""};
}

/// Opens what lies in the folder, looks everything up, verifies, lists, and checks that the store still works.
int use_and_count_found(const std::string& directory, bool* all_right) {
  int found = 0;
  {
    const auto store = Store::open(options_in(directory));
    for (int number = 0; number < kRows; ++number) {
      if (const auto binary = store->find_binary(key_of(number))) {
        ++found;
        *all_right = *all_right && binary->code == code_of(number);
      }
      if (const auto tuned = store->find_tuned(key_of(number))) {
        ++found;
        *all_right = *all_right && tuned->schedule == "{\"tile_m\": " + std::to_string(number) + "}";
      }
      if (const auto rejected = store->find_rejected(key_of(number))) {
        ++found;
        *all_right = *all_right && rejected->reason == "reason " + std::to_string(number);
      }
    }
    store->list();
    store->statistics();
    store->verify();
    store->put_binary("new", {"code", ""}, "");
    *all_right = *all_right && store->find_binary("new").has_value();
  }
  return found;
}

TEST(CacheCorruption, TruncatedAnywhereIsAMissOrTheRightBytes) {
  const Image image = make_image(false);
  ASSERT_GT(image.database.size(), 20u * 512);
  for (std::size_t size = 0; size < image.database.size(); size += 512) {
    const TemporaryDirectory directory(testing::fast_directory());
    write_file(directory / "cache-v1.db", image.database.substr(0, size));
    bool all_right = true;
    use_and_count_found(directory.path(), &all_right);
    ASSERT_TRUE(all_right) << size;
    // Whatever was wrong with it, the next process has a working cache, and its entries replace the damaged ones.
    const auto store = Store::open(options_in(directory.path()));
    ASSERT_TRUE(store->find_binary("new").has_value()) << size;
    fill(*store);
    ASSERT_THAT(store->verify(), IsEmpty()) << size;
  }
}

TEST(CacheCorruption, ALogTruncatedAnywhereIsAMissOrTheRightBytes) {
  const Image image = make_image(true);
  for (std::size_t size = 0; size < image.log.size(); size += 4096 + 512) {
    const TemporaryDirectory directory(testing::fast_directory());
    write_file(directory / "cache-v1.db", image.database);
    write_file(directory / "cache-v1.db-wal", image.log.substr(0, size));
    bool all_right = true;
    use_and_count_found(directory.path(), &all_right);
    ASSERT_TRUE(all_right) << size;
    ASSERT_THAT(Store::open(options_in(directory.path()))->verify(), IsEmpty()) << size;
  }
}

TEST(CacheCorruption, FlippedBitsAreAMissOrTheRightBytes) {
  auto generator = testing::seeded_generator();
  const Image closed = make_image(false), crashed = make_image(true);
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    Image image = round % 3 == 0 ? crashed : closed;
    std::string& target = round % 6 == 0 ? image.log : image.database;
    const auto flips = 1 + generator() % 8;
    for (std::uint64_t i = 0; i < flips; ++i)
      target[generator() % target.size()] ^= static_cast<char>(1u << (generator() % 8));
    const TemporaryDirectory directory(testing::fast_directory());
    write_file(directory / "cache-v1.db", image.database);
    if (!image.log.empty()) write_file(directory / "cache-v1.db-wal", image.log);
    bool all_right = true;
    found += use_and_count_found(directory.path(), &all_right);
    ASSERT_TRUE(all_right) << "round " << round;
  }
  EXPECT_GT(found, 300 * kRows);  // most rows of most files outlive a few flipped bits
}

TEST(CacheCorruption, AFlippedPackIsAMissOrTheRightBytes) {
  auto generator = testing::seeded_generator();
  const std::string sound = make_image(false).database;
  for (int round = 0; round < 100; ++round) {
    std::string image = sound;
    for (int i = 0; i < 4; ++i) image[generator() % image.size()] ^= static_cast<char>(1u << (generator() % 8));
    const TemporaryDirectory directory(testing::fast_directory());
    write_file(directory / "pack.db", image);
    Options options = options_in(directory / "user");
    options.packs = {directory / "pack.db"};
    const auto store = Store::open(options);
    for (int number = 0; number < kRows; ++number) {
      const auto binary = store->find_binary(key_of(number));
      if (binary.has_value()) {
        ASSERT_EQ(binary->code, code_of(number));
      }
    }
    store->verify();
    ASSERT_EQ(read_file(directory / "pack.db"), image);
  }
}

TEST(CacheCorruption, ADamagedFileIsSetAsideAndReplacedWithOneWarning) {
  const TemporaryDirectory directory;
  for (const char* garbage : {"this is no database, though it is long enough to be one by its size: ", "more of it "}) {
    std::string content;
    while (content.size() < 20000) content += garbage;
    write_file(directory / "cache-v1.db", content);
    write_file(directory / "cache-v1.db-wal", content);
    const auto result = testing::run_in_child([&] {
      const auto store = Store::open(options_in(directory.path()));
      CHILD_EXPECT(!store->find_binary("key").has_value());
      store->put_binary("key", {"code", ""}, "");
      store->flush();
      return 0;
    });
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.warnings(), 1) << result.errors;
    EXPECT_TRUE(Store::open(options_in(directory.path()))->find_binary("key").has_value());
    // That of the round before is gone. (SQLite itself may have thrown away the log.)
    const auto corpses = files_starting_with(directory.path(), "cache-v1.db.corrupt-");
    ASSERT_THAT(corpses, Not(IsEmpty()));
    for (const auto& corpse : corpses) EXPECT_EQ(read_file(corpse), content);
  }
}

TEST(CacheCorruption, AFileThatAnotherProcessHasOpenIsNotSetAside) {
  const TemporaryDirectory directory;
  const std::string path = directory / "cache-v1.db";
  fill(*Store::open(options_in(directory.path())));
  const auto user = Store::open(options_in(directory.path()));
  const auto result = testing::run_in_child([&] {
    write_file(path, std::string(20000, 'x'));
    const auto store = Store::open(options_in(directory.path()));
    CHILD_EXPECT(store->user_path().empty());
    store->put_binary("key", {"code", ""}, "");
    CHILD_EXPECT(store->find_binary("key").has_value());
    return 0;
  });
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.warnings(), 1) << result.errors;
  EXPECT_THAT(files_starting_with(directory.path(), "cache-v1.db.corrupt-"), IsEmpty());
}

TEST(CacheCorruption, DamageFoundByALookupIsRepairedInTheBackground) {
  const TemporaryDirectory directory;
  const std::string path = directory / "cache-v1.db";
  fill(*Store::open(options_in(directory.path())));
  const auto result = testing::run_in_child([&] {
    const auto store = Store::open(options_in(directory.path()));
    // Everything behind the first page, which the store has read already. Another process, as only that leaves locks
    // alone.
    const pid_t vandal = testing::start_child([&] {
      const auto size = std::filesystem::file_size(path);
      std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(8192);
      file << std::string(size - 8192, '\xff');
      return 0;
    });
    CHILD_EXPECT(testing::wait_for_child(vandal).exit_code == 0);
    CHILD_EXPECT(!store->find_binary(key_of(1)).has_value());
    store->flush();
    store->put_binary("new", {"code", ""}, "");
    store->flush();
    CHILD_EXPECT(store->verify().empty());
    return 0;
  });
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.warnings(), 1) << result.errors;
  EXPECT_THAT(files_starting_with(directory.path(), "cache-v1.db.corrupt-"), SizeIs(1));
  EXPECT_TRUE(Store::open(options_in(directory.path()))->find_binary("new").has_value());
}

/// A file that is not ours to use: memory only, one warning, every byte as before.
void expect_left_alone(const TemporaryDirectory& directory) {
  const std::string before = read_file(directory / "cache-v1.db");
  const auto result = testing::run_in_child([&] {
    const auto store = Store::open(options_in(directory.path()));
    CHILD_EXPECT(store->user_path().empty());
    store->put_binary("key", {"code", ""}, "");
    store->flush();
    CHILD_EXPECT(store->find_binary("key").has_value());
    CHILD_EXPECT(!store->find_binary(key_of(1)).has_value());
    CHILD_EXPECT(store->trim(0).status().code() == StatusCode::not_found);
    CHILD_EXPECT(store->verify().size() == 1);
    return 0;
  });
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.warnings(), 1) << result.errors;
  EXPECT_EQ(read_file(directory / "cache-v1.db"), before);
  EXPECT_THAT(files_starting_with(directory.path(), "cache-v1.db.corrupt-"), IsEmpty());
}

TEST(CacheCorruption, ANewerSchemaIsLeftAlone) {
  const TemporaryDirectory directory;
  fill(*Store::open(options_in(directory.path())));
  execute_sql(directory / "cache-v1.db", "PRAGMA user_version=2; CREATE TABLE later(x)");
  expect_left_alone(directory);
}

TEST(CacheCorruption, AnotherProgramsDatabaseIsLeftAlone) {
  const TemporaryDirectory directory;
  execute_sql(directory / "cache-v1.db", "CREATE TABLE bookmarks(url); INSERT INTO bookmarks VALUES('x')");
  expect_left_alone(directory);
}

TEST(CacheCorruption, AViewInThePlaceOfATableIsNotQueried) {
  // Its query would never end.
  const TemporaryDirectory directory;
  execute_sql(
      directory / "pack.db",
      "PRAGMA application_id=0x53414343; PRAGMA user_version=1; CREATE TABLE tuned(x); CREATE TABLE rejected(x);"
      "CREATE VIEW binary AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
      "SELECT i AS hash, i AS checksum FROM n");
  Options options = options_in(directory / "user");
  options.packs = {directory / "pack.db"};
  const auto store = Store::open(options);
  EXPECT_FALSE(store->find_binary("key").has_value());
  EXPECT_THAT(store->verify(), SizeIs(1));
}

TEST(CacheCorruption, TriggersOfAHostileFileDoNotRun) {
  const TemporaryDirectory directory;
  fill(*Store::open(options_in(directory.path())));
  execute_sql(directory / "cache-v1.db", "CREATE TRIGGER hostile AFTER INSERT ON binary BEGIN DELETE FROM tuned; END");
  Store::open(options_in(directory.path()))->put_binary("key", {"code", ""}, "");
  // A schema that is not ours counts as damage.
  EXPECT_THAT(files_starting_with(directory.path(), "cache-v1.db.corrupt-"), Not(IsEmpty()));
  EXPECT_TRUE(Store::open(options_in(directory.path()))->find_binary("key").has_value());
}

}  // namespace
}  // namespace saccade::cache
