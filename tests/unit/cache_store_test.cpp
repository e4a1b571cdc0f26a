#include "cache/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/unit/cache_support.h"

namespace saccade::cache {
namespace {

using testing::execute_sql;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::key_of;
using testing::options_in;
using testing::query_integer;
using ::testing::SizeIs;
using testing::TemporaryDirectory;

/// Writes and closes, so that a store opened afterwards reads the file.
void put_and_close(const Options& options, int number, const std::string& code) {
  const auto store = Store::open(options);
  store->put_binary(key_of(number), {code, "{}"}, "binary " + std::to_string(number));
}

TEST(CacheStore, BinaryTunedAndRejectedSurviveTheProcess) {
  const TemporaryDirectory directory;
  auto generator = testing::seeded_generator();
  const std::string code = testing::code_like_bytes(100000, generator);
  {
    const auto store = Store::open(options_in(directory.path()));
    store->put_binary("key", {code, "{\"registers\": 168}"}, "label");
    store->put_tuned("key", {"{\"tile_m\": 128}", "{\"time_ns\": 1}"}, "label");
    store->put_rejected("key", {"wrong result"}, "label");
  }
  const auto store = Store::open(options_in(directory.path()));
  std::string layer;
  const auto binary = store->find_binary("key", &layer);
  ASSERT_TRUE(binary.has_value());
  EXPECT_EQ(binary->code, code);
  EXPECT_EQ(binary->metadata, "{\"registers\": 168}");
  EXPECT_EQ(layer, directory / "cache-v1.db");
  EXPECT_EQ(layer, store->user_path());
  const auto tuned = store->find_tuned("key");
  ASSERT_TRUE(tuned.has_value());
  EXPECT_EQ(tuned->schedule, "{\"tile_m\": 128}");
  EXPECT_EQ(tuned->provenance, "{\"time_ns\": 1}");
  const auto rejected = store->find_rejected("key");
  ASSERT_TRUE(rejected.has_value());
  EXPECT_EQ(rejected->reason, "wrong result");
}

TEST(CacheStore, WhatWasPutIsFoundAtOnceInMemory) {
  const TemporaryDirectory directory;
  const auto store = Store::open(options_in(directory.path()));
  store->put_binary("key", {"code", ""}, "");
  std::string layer;
  ASSERT_TRUE(store->find_binary("key", &layer).has_value());
  EXPECT_EQ(layer, "memory");
}

TEST(CacheStore, TablesAreApart) {
  const TemporaryDirectory directory;
  const auto store = Store::open(options_in(directory.path()));
  store->put_binary("key", {"code", ""}, "");
  EXPECT_FALSE(store->find_tuned("key").has_value());
  EXPECT_FALSE(store->find_rejected("key").has_value());
  EXPECT_FALSE(store->find_binary("another key").has_value());
}

TEST(CacheStore, KeysAndValuesOfAnyBytesAreKept) {
  const TemporaryDirectory directory;
  const std::string odd("\0\xff'\";--\n", 8);
  {
    const auto store = Store::open(options_in(directory.path()));
    store->put_binary(odd, {odd, odd}, odd);
    store->put_binary("", {"", ""}, "");
  }
  const auto store = Store::open(options_in(directory.path()));
  ASSERT_TRUE(store->find_binary(odd).has_value());
  EXPECT_EQ(store->find_binary(odd)->code, odd);
  EXPECT_EQ(store->find_binary(odd)->metadata, odd);
  ASSERT_TRUE(store->find_binary("").has_value());
  EXPECT_THAT(store->verify(), IsEmpty());
}

TEST(CacheStore, ALaterPutReplacesTheEarlier) {
  const TemporaryDirectory directory;
  put_and_close(options_in(directory.path()), 1, "old");
  put_and_close(options_in(directory.path()), 1, "new");
  const auto store = Store::open(options_in(directory.path()));
  EXPECT_EQ(store->find_binary(key_of(1))->code, "new");
  EXPECT_THAT(store->list(), SizeIs(1));
}

TEST(CacheStore, TheUsersRowWinsOverThePacks) {
  const TemporaryDirectory packs, directory;
  put_and_close(options_in(packs.path()), 1, "from the pack");
  Options options = options_in(directory.path());
  options.packs = {testing::make_pack(packs / "cache-v1.db", packs / "pack.db")};
  {
    const auto store = Store::open(options);
    std::string layer;
    EXPECT_EQ(store->find_binary(key_of(1), &layer)->code, "from the pack");
    EXPECT_EQ(layer, options.packs.front());
  }
  put_and_close(options, 1, "from the user");
  const auto store = Store::open(options);
  EXPECT_EQ(store->find_binary(key_of(1))->code, "from the user");
}

TEST(CacheStore, TheFirstPackWinsOverTheSecond) {
  const TemporaryDirectory first, second, directory;
  put_and_close(options_in(first.path()), 1, "first");
  put_and_close(options_in(second.path()), 1, "second");
  put_and_close(options_in(second.path()), 2, "only in the second");
  Options options = options_in(directory.path());
  options.packs = {testing::make_pack(first / "cache-v1.db", first / "pack.db"),
                   testing::make_pack(second / "cache-v1.db", second / "pack.db")};
  const auto store = Store::open(options);
  EXPECT_EQ(store->find_binary(key_of(1))->code, "first");
  EXPECT_EQ(store->find_binary(key_of(2))->code, "only in the second");
}

TEST(CacheStore, AnIntactPackRowServesWhenTheUsersIsDamaged) {
  const TemporaryDirectory packs, directory;
  put_and_close(options_in(packs.path()), 1, "from the pack");
  Options options = options_in(directory.path());
  options.packs = {testing::make_pack(packs / "cache-v1.db", packs / "pack.db")};
  put_and_close(options, 1, "from the user");
  execute_sql(directory / "cache-v1.db", "UPDATE binary SET content = x'00'");
  const auto store = Store::open(options);
  EXPECT_EQ(store->find_binary(key_of(1))->code, "from the pack");
}

TEST(CacheStore, APackIsNeitherWrittenNorLockedNorGivenSideFiles) {
  const TemporaryDirectory packs, directory;
  put_and_close(options_in(packs.path()), 1, "from the pack");
  Options options = options_in(directory.path());
  options.packs = {testing::make_pack(packs / "cache-v1.db", packs / "pack.db")};
  const std::string before = testing::read_file(options.packs.front());
  {
    // Someone else's write lock would stop any reader that looks at locks.
    sqlite3* other = nullptr;
    std::filesystem::permissions(options.packs.front(), std::filesystem::perms::owner_all);
    ASSERT_EQ(sqlite3_open(options.packs.front().c_str(), &other), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(other, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr), SQLITE_OK);
    const auto store = Store::open(options);
    EXPECT_TRUE(store->find_binary(key_of(1)).has_value());
    store->put_binary(key_of(1), {"mine", ""}, "");
    store->flush();
    EXPECT_THAT(testing::files_starting_with(packs.path(), "pack.db"), SizeIs(1));
    sqlite3_close(other);
  }
  EXPECT_EQ(testing::read_file(options.packs.front()), before);
}

TEST(CacheStore, AnUnusablePackIsLeftOutAndTheRestServes) {
  const TemporaryDirectory directory;
  put_and_close(options_in(directory.path()), 1, "from the user");
  Options options = options_in(directory.path());
  testing::write_file(directory / "pointer.db", "version https://git-lfs.github.com/spec/v1\n");
  options.packs = {directory / "missing.db", directory / "pointer.db"};
  const auto store = Store::open(options);
  EXPECT_EQ(store->find_binary(key_of(1))->code, "from the user");
  EXPECT_FALSE(store->find_binary(key_of(2)).has_value());
  EXPECT_THAT(store->statistics(), SizeIs(1));
  EXPECT_THAT(store->verify(), SizeIs(2));
}

TEST(CacheStore, APackThatOthersCanWriteIsLeftOut) {
  const TemporaryDirectory packs, directory;
  put_and_close(options_in(packs.path()), 1, "from the pack");
  Options options = options_in(directory.path());
  options.packs = {testing::make_pack(packs / "cache-v1.db", packs / "pack.db")};
  std::filesystem::permissions(options.packs.front(), std::filesystem::perms(0666));
  EXPECT_FALSE(Store::open(options)->find_binary(key_of(1)).has_value());
}

TEST(CacheStore, APackPathOfAnyCharactersOpens) {
  const TemporaryDirectory packs, directory;
  put_and_close(options_in(packs.path()), 1, "from the pack");
  const std::string plain = testing::make_pack(packs / "cache-v1.db", packs / "pack.db");
  Options options = options_in(directory.path());
  options.packs = {packs / "100%3f?mode=rwc#&x y.db"};
  std::filesystem::rename(plain, options.packs.front());
  EXPECT_TRUE(Store::open(options)->find_binary(key_of(1)).has_value());
}

TEST(CacheStore, KeysWithTheSameHashAreMissesOfEachOther) {
  const TemporaryDirectory directory;
  Hooks hooks = default_hooks();
  hooks.hash = [](std::string_view) { return KeyHash{}; };
  open_store(options_in(directory.path()), hooks)->put_binary("one", {"code of one", ""}, "");
  {
    const auto store = open_store(options_in(directory.path()), hooks);
    EXPECT_FALSE(store->find_binary("two").has_value());
    ASSERT_TRUE(store->find_binary("one").has_value());
    store->put_binary("two", {"code of two", ""}, "");
  }
  const auto store = open_store(options_in(directory.path()), hooks);
  EXPECT_EQ(store->find_binary("two")->code, "code of two");
  EXPECT_FALSE(store->find_binary("one").has_value());
}

TEST(CacheStore, ADamagedRowIsAMissAndIsReportedByVerifyAndReplacedByAPut) {
  const TemporaryDirectory directory;
  put_and_close(options_in(directory.path()), 1, "sound");
  put_and_close(options_in(directory.path()), 2, "sound too");
  execute_sql(directory / "cache-v1.db", "UPDATE binary SET label = 'renamed' WHERE label = 'binary 1'");
  {
    const auto store = Store::open(options_in(directory.path()));
    EXPECT_FALSE(store->find_binary(key_of(1)).has_value());
    EXPECT_TRUE(store->find_binary(key_of(2)).has_value());
    const auto faults = store->verify();
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_THAT(faults.front(), HasSubstr("renamed"));
    store->put_binary(key_of(1), {"again", ""}, "binary 1");
  }
  const auto store = Store::open(options_in(directory.path()));
  EXPECT_EQ(store->find_binary(key_of(1))->code, "again");
  EXPECT_THAT(store->verify(), IsEmpty());
}

TEST(CacheStore, ARowUnderAnotherKeysHashIsAMissAndAFault) {
  const TemporaryDirectory directory;
  put_and_close(options_in(directory.path()), 1, "sound");
  execute_sql(directory / "cache-v1.db", "UPDATE binary SET hash = x'0001'");
  const auto store = Store::open(options_in(directory.path()));
  EXPECT_FALSE(store->find_binary(key_of(1)).has_value());
  EXPECT_THAT(store->verify(), SizeIs(1));
}

TEST(CacheStore, ListSaysTableLayerLabelSizeAndHour) {
  const TemporaryDirectory directory;
  Hooks hooks = default_hooks();
  hooks.now = [] { return std::int64_t{1'700'000'123}; };
  const auto store = open_store(options_in(directory.path()), hooks);
  store->put_binary("key", {std::string(100, 'x'), "{}"}, "a kernel");
  store->put_tuned("key", {"{}", "{}"}, "a schedule");
  const auto entries = store->list();
  ASSERT_THAT(entries, SizeIs(2));
  EXPECT_EQ(entries[0].table, "binary");
  EXPECT_EQ(entries[0].layer, store->user_path());
  EXPECT_EQ(entries[0].label, "a kernel");
  EXPECT_GE(entries[0].bytes, 100);
  EXPECT_EQ(entries[0].last_used, 1'700'000'123 / 3600 * 3600);
  EXPECT_EQ(entries[1].table, "tuned");
}

TEST(CacheStore, StatisticsCountEachLayer) {
  const TemporaryDirectory packs, directory;
  put_and_close(options_in(packs.path()), 1, "from the pack");
  Options options = options_in(directory.path());
  options.packs = {testing::make_pack(packs / "cache-v1.db", packs / "pack.db")};
  const auto store = Store::open(options);
  store->put_binary(key_of(2), {std::string(500, 'x'), ""}, "");
  store->put_tuned(key_of(2), {"{}", ""}, "");
  store->put_rejected(key_of(3), {"reason"}, "");
  store->put_rejected(key_of(4), {"reason"}, "");
  const auto layers = store->statistics();
  ASSERT_THAT(layers, SizeIs(2));
  EXPECT_EQ(layers[0].path, store->user_path());
  EXPECT_TRUE(layers[0].writable);
  EXPECT_EQ(layers[0].binaries, 1);
  EXPECT_GE(layers[0].binary_bytes, 500);
  EXPECT_EQ(layers[0].tuned, 1);
  EXPECT_EQ(layers[0].rejected, 2);
  EXPECT_GT(layers[0].file_bytes, 0);
  EXPECT_FALSE(layers[1].writable);
  EXPECT_EQ(layers[1].binaries, 1);
}

TEST(CacheStore, MemoryOnlyKeepsEntriesAndTouchesNoFile) {
  const TemporaryDirectory directory;
  Options options = options_in(directory.path());
  options.memory_only = true;
  const auto store = Store::open(options);
  store->put_binary("key", {"code", ""}, "a kernel");
  store->flush();
  EXPECT_TRUE(store->find_binary("key").has_value());
  EXPECT_EQ(store->user_path(), "");
  EXPECT_EQ(store->lock("key", 0), nullptr);
  EXPECT_THAT(store->trim(0).status().message(), HasSubstr("memory only"));
  ASSERT_THAT(store->list(), SizeIs(1));
  EXPECT_EQ(store->list().front().layer, "memory");
  EXPECT_EQ(store->statistics().front().binaries, 1);
  EXPECT_THAT(store->verify(), IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(CacheStore, ReadOnlyReadsAndNeverWrites) {
  const TemporaryDirectory directory;
  put_and_close(options_in(directory.path()), 1, "sound");
  Options options = options_in(directory.path());
  options.read_only = true;
  {
    const auto store = Store::open(options);
    EXPECT_TRUE(store->find_binary(key_of(1)).has_value());
    store->put_binary(key_of(2), {"mine", ""}, "");
    EXPECT_TRUE(store->find_binary(key_of(2)).has_value());
    EXPECT_EQ(store->lock(key_of(2), 0), nullptr);
    EXPECT_EQ(store->trim(0).status().code(), StatusCode::io_error);
    EXPECT_THAT(store->trim(0).status().message(), HasSubstr("cannot be written"));
  }
  const auto store = Store::open(options_in(directory.path()));
  EXPECT_FALSE(store->find_binary(key_of(2)).has_value());
  EXPECT_TRUE(store->find_binary(key_of(1)).has_value());
}

TEST(CacheStore, ReadOnlyWithoutADatabaseCreatesNothing) {
  const TemporaryDirectory directory;
  Options options = options_in(directory / "not there");
  options.read_only = true;
  EXPECT_FALSE(Store::open(options)->find_binary("key").has_value());
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(CacheStore, TheDatabaseSaysWhatItIs) {
  const TemporaryDirectory directory;
  put_and_close(options_in(directory.path()), 1, "sound");
  const std::string path = directory / "cache-v1.db";
  EXPECT_EQ(query_integer(path, "PRAGMA application_id"), 0x53414343);
  EXPECT_EQ(query_integer(path, "PRAGMA user_version"), 1);
  EXPECT_EQ(query_integer(path, "SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'wal'"), 1);
}

TEST(CacheStore, ANetworkFileSystemGetsAFileOfItsOwnWithoutWal) {
  const TemporaryDirectory directory;
  Hooks hooks = default_hooks();
  hooks.is_local_file_system = [](const std::string&) { return false; };
  {
    const auto store = open_store(options_in(directory.path()), hooks);
    store->put_binary("key", {"code", ""}, "");
    store->flush();
    EXPECT_EQ(store->user_path(), directory / "cache-v1-shared.db");
    EXPECT_FALSE(std::filesystem::exists(store->user_path() + "-shm"));
    EXPECT_FALSE(std::filesystem::exists(store->user_path() + "-wal"));
  }
  const auto store = open_store(options_in(directory.path()), hooks);
  EXPECT_TRUE(store->find_binary("key").has_value());
  EXPECT_THAT(store->verify(), IsEmpty());
}

TEST(CacheStore, LabelsAreCutToALineInAListing) {
  const TemporaryDirectory directory;
  const auto store = Store::open(options_in(directory.path()));
  store->put_tuned("key", {"{}", "{}"}, std::string(10000, 'x'));
  EXPECT_EQ(store->list().front().label.size(), 200u);
}

TEST(CacheStore, ManyThreadsPutFindAndInspectAtOnce) {
  const TemporaryDirectory directory;
  auto generator = testing::seeded_generator();
  const std::string code = testing::code_like_bytes(5000, generator);
  constexpr int kThreads = 8, kKeys = 40;
  {
    const auto store = Store::open(options_in(directory.path()));
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kKeys; ++i) {
          const int number = (i * 7 + thread) % kKeys;
          store->put_binary(key_of(number), {code + std::to_string(number), ""}, "");
          const auto found = store->find_binary(key_of(number));
          if (!found.has_value() || found->code != code + std::to_string(number)) ++wrong;
          if (i % 20 == thread) store->list();
          if (i % 20 == thread + 1) store->flush();
        }
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
  }
  const auto store = Store::open(options_in(directory.path()));
  for (int number = 0; number < kKeys; ++number)
    EXPECT_EQ(store->find_binary(key_of(number))->code, code + std::to_string(number));
  EXPECT_THAT(store->verify(), IsEmpty());
}

TEST(CacheStore, TwoStoresOnOneFileSeeEachOthersRows) {
  const TemporaryDirectory directory;
  const auto one = Store::open(options_in(directory.path()));
  const auto two = Store::open(options_in(directory.path()));
  one->put_binary("key", {"code", ""}, "");
  one->flush();
  EXPECT_TRUE(two->find_binary("key").has_value());
}

}  // namespace
}  // namespace saccade::cache
