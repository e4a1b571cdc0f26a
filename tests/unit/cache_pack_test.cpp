// Packs: made, signed, found and refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "cache/pack_path.h"
#include "cache/pack_writer.h"
#include "cache/row_text.h"
#include "tests/unit/cache_support.h"

namespace saccade::cache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TemporaryDirectory;
using testing::write_file;

TunedRow row(int number, const std::string& schedule, std::int64_t created = 1000) {
  return {KeyBuilder().add("table", "tuned").add("n", number).bytes(), {schedule, "{}"}, "label", "", created};
}

std::string make(const std::string& path, const std::vector<TunedRow>& rows) {
  auto writer = PackWriter::create(path);
  EXPECT_TRUE(writer.ok()) << writer.status().message();
  for (const TunedRow& r : rows) EXPECT_TRUE((*writer)->add_tuned(r));
  EXPECT_TRUE((*writer)->add_binary("binary key", {"code", "{}"}, "a kernel"));
  EXPECT_TRUE((*writer)->finish());
  return path;
}

/// With nobody's packs but these.
Options with(const TemporaryDirectory& user, const std::vector<std::string>& packs) {
  Options options = testing::options_in(user.path());
  options.packs = packs;
  options.finds_packs = false;
  return options;
}

std::string schedule_of(Store& store, int number) {
  const auto found = store.find_tuned(row(number, "").key);
  return found ? found->schedule : "";
}

class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

struct Signer {
  TemporaryDirectory folder;
  KeyPair keys = make_key_pair("the fleet's");
  std::string trusted_file = folder / "trusted";

  explicit Signer(const std::string& more = "") {
    write_file(trusted_file, "# whom we trust\n" + keys.public_line + more);
    std::filesystem::permissions(trusted_file, std::filesystem::perms(0600));
  }
};

TEST(Pack, HoldsWhatWasPutAndNothingElseLiesAround) {
  const TemporaryDirectory folder, user;
  const std::string pack = make(folder / "a.pack", {row(1, "one"), row(2, "two")});
  EXPECT_THAT(testing::files_starting_with(folder.path(), "a.pack"), ElementsAre(pack));
  const auto store = Store::open(with(user, {pack}));
  EXPECT_EQ(schedule_of(*store, 2), "two");
  EXPECT_EQ(store->find_binary("binary key")->code, "code");
  EXPECT_TRUE(store->verify().empty());
}

TEST(Pack, AnAbandonedOneLeavesWhatWasThere) {
  const TemporaryDirectory folder;
  const std::string pack = make(folder / "a.pack", {row(1, "one")});
  const std::string before = read_file(pack);
  {
    auto writer = PackWriter::create(pack);
    ASSERT_TRUE((*writer)->add_tuned(row(1, "another")));
  }
  EXPECT_EQ(read_file(pack), before);
  EXPECT_THAT(testing::files_starting_with(folder.path(), "a.pack"), ElementsAre(pack));
  EXPECT_FALSE(PackWriter::create(folder / "no such folder/a.pack").ok());
}

TEST(Pack, ReplacesNothingThatIsNoFileAndFollowsLinks) {
  const TemporaryDirectory folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(PackWriter::create(folder / "pipe").status().message(), HasSubstr("no regular file"));
  EXPECT_THAT(sign_file(folder / "pipe", make_key_pair("").secret_line).message(), HasSubstr("no regular file"));
  write_file(folder / "real.pack", "old");
  std::filesystem::create_symlink(folder / "real.pack", folder / "link.pack");
  make(folder / "link.pack", {row(1, "one")});
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.pack"));
  EXPECT_NE(read_file(folder / "real.pack"), "old");
  write_file(folder / "precious", "precious");
  std::filesystem::create_symlink(folder / "precious", folder / "real.pack.sig.tmp");
  EXPECT_TRUE(sign_file(folder / "real.pack", make_key_pair("").secret_line));
  EXPECT_EQ(read_file(folder / "precious"), "precious");
}

TEST(Pack, AFileThatTakesTheNameOfTheOneThatWasCheckedIsNotRead) {
  const TemporaryDirectory folder, user;
  const std::string pack = make(folder / "a.pack", {row(1, "checked")});
  const auto store = Store::open(with(user, {pack}));
  EXPECT_EQ(schedule_of(*store, 1), "checked");
  make(pack, {row(1, "swapped"), row(2, "swapped")});
  EXPECT_EQ(schedule_of(*store, 2), "");  // the connection is still that to the first
  EXPECT_FALSE(store->tuned_rows(Unreadable::fails, kAllRows).ok());
  const auto rest = store->tuned_rows(Unreadable::is_skipped, kAllRows);
  ASSERT_TRUE(rest.ok());
  for (const TunedRow& r : *rest) EXPECT_NE(r.tuned.schedule, "swapped");
}

TEST(Pack, WhatItRejectsIsNotHeardAndHugeTunedRowsAreDamaged) {
  const TemporaryDirectory folder, user, makers;
  {
    const auto store = Store::open(with(makers, {}));
    store->put_rejected("a candidate", {"no reason"}, "");
    store->put_binary("a kernel", {"code", "{}"}, "");
    store->flush();
  }
  const std::string pack = testing::make_pack(makers / "cache-v1.db", folder / "a.pack");
  const std::string bomb = make(folder / "b.pack", {row(1, std::string(std::size_t{1} << 20, ' ')), row(2, "small")});
  const auto store = Store::open(with(user, {pack, bomb}));
  EXPECT_TRUE(store->find_binary("a kernel"));
  EXPECT_FALSE(store->find_rejected("a candidate"));
  EXPECT_EQ(schedule_of(*store, 1), "");
  EXPECT_EQ(schedule_of(*store, 2), "small");
  EXPECT_EQ(store->tuned_rows(Unreadable::fails, kAllRows)->size(), 1u);
  EXPECT_EQ(store->tuned_rows(Unreadable::fails, 0)->size(), 0u);
}

TEST(Pack, EqualRowsMakeEqualBytes) {
  const TemporaryDirectory folder;
  EXPECT_EQ(read_file(make(folder / "a.pack", {row(1, "one"), row(2, "two")})),
            read_file(make(folder / "b.pack", {row(1, "one"), row(2, "two")})));
}

TEST(Pack, TheRowThatWasMeasuredLastWinsAndTheUsersOverAll) {
  const TemporaryDirectory folder, user;
  const std::string older = make(folder / "a.pack", {row(1, "older", 1000), row(2, "older", 1000), row(3, "first", 7)});
  const std::string newer =
      make(folder / "b.pack", {row(1, "newer", 2000), row(2, "newer", 2000), row(3, "second", 7)});
  for (const auto& packs : {std::vector{older, newer}, std::vector{newer, older}}) {
    const TemporaryDirectory own;
    const auto store = Store::open(with(own, packs));
    EXPECT_EQ(schedule_of(*store, 1), "newer");
    EXPECT_EQ(schedule_of(*store, 3), packs.front() == older ? "first" : "second");
    store->put_tuned(row(2, "").key, {"mine", "{}"}, "");
    store->flush();
    EXPECT_EQ(schedule_of(*Store::open(with(own, packs)), 2), "mine");
    std::vector<std::string> all;
    const auto rows = store->tuned_rows(Unreadable::fails, kAllRows);
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    for (const TunedRow& r : *rows) all.push_back(r.tuned.schedule);
    EXPECT_THAT(all, ElementsAre("newer", "mine", packs.front() == older ? "first" : "second"));
  }
}

/// What is left out says so in one line, and the rest serves.
TEST(Pack, DamagedForeignAndNewerOnesAreLeftOutAndTheRestServes) {
  const TemporaryDirectory folder, user;
  const std::string good = make(folder / "good.pack", {row(1, "good")});
  const std::string whole = read_file(good);
  std::vector<std::string> packs = {good};
  const auto add = [&](const std::string& name, const std::string& bytes) {
    write_file(folder / name, bytes);
    packs.push_back(folder / name);
  };
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{8192}, whole.size() / 2, whole.size() - 1})
    add("cut" + std::to_string(size), whole.substr(0, size));
  add("text", "not a database at all");
  add("newer", whole);
  testing::execute_sql(folder / "newer", "PRAGMA user_version=2");
  add("foreign", whole);
  testing::execute_sql(folder / "foreign", "PRAGMA application_id=7");
  add("hostile", whole);
  testing::execute_sql(folder / "hostile", "DROP TABLE tuned; CREATE VIEW tuned AS SELECT * FROM binary");
  std::filesystem::create_directory(folder / "directory");
  packs.push_back(folder / "directory");
  packs.push_back(folder / "missing");
  ::testing::internal::CaptureStderr();
  const auto store = Store::open(with(user, packs));
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(schedule_of(*store, 1), "good");
  EXPECT_LE(static_cast<std::size_t>(std::count(warnings.begin(), warnings.end(), '\n')), packs.size() - 1) << warnings;
  for (const char* name : {"cut0 ", "cut100 ", "text ", "newer ", "foreign ", "hostile ", "directory ", "missing "})
    EXPECT_THAT(warnings, HasSubstr(name)) << warnings;
}

TEST(Signature, OfATrustedKeyIsGoodAndOfAnotherUnknown) {
  const TemporaryDirectory folder;
  const Signer signer, stranger;
  const std::string pack = make(folder / "a.pack", {row(1, "one")});
  EXPECT_EQ(check_signature(pack, {})->state, Signature::absent);
  ASSERT_TRUE(sign_file(pack, signer.keys.secret_line));
  const TrustedKeys trusted = *trusted_keys_of_text(signer.keys.public_line);
  EXPECT_EQ(check_signature(pack, trusted)->state, Signature::good);
  EXPECT_EQ(check_signature(pack, trusted)->key, "the fleet's");
  EXPECT_EQ(check_signature(pack, *trusted_keys_of_text(stranger.keys.public_line))->state, Signature::unknown);
  ASSERT_TRUE(sign_file(pack, stranger.keys.secret_line));
  EXPECT_EQ(check_signature(pack, trusted)->state, Signature::unknown);
}

TEST(Signature, AnyFlippedBitOfThePackOrTheSignatureIsSeen) {
  const TemporaryDirectory folder;
  const Signer signer;
  const TrustedKeys trusted = *trusted_keys_of_text(signer.keys.public_line);
  const std::string file = folder / "f";
  write_file(file, std::string(300, 'x'));
  ASSERT_TRUE(sign_file(file, signer.keys.secret_line));
  ASSERT_EQ(check_signature(file, trusted)->state, Signature::good);
  for (const std::string& path : {file, file + ".sig"}) {
    const std::string whole = read_file(path);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ 1);
      write_file(path, changed);
      EXPECT_NE(check_signature(file, trusted)->state, Signature::good) << path << " " << i;
    }
    for (const std::string& changed :
         {whole.substr(0, whole.size() / 2), whole + "x", std::string(), std::string(9000, 'a')}) {
      write_file(path, changed);
      EXPECT_EQ(check_signature(file, trusted)->state, Signature::bad) << path << " " << changed.size();
    }
    write_file(path, whole);
  }
  EXPECT_EQ(check_signature(file, trusted)->state, Signature::good);
}

TEST(Signature, KeysAndListsOfKeysThatAreNoneAreRefused) {
  const TemporaryDirectory folder;
  write_file(folder / "f", "x");
  const KeyPair pair = make_key_pair("");
  for (const std::string& text :
       {std::string(), pair.public_line, pair.secret_line + "more", std::string("saccade-secret-key ed25519 AAAA")})
    EXPECT_THAT(sign_file(folder / "f", text).message(), HasSubstr("no secret key")) << text;
  EXPECT_FALSE(std::filesystem::exists(folder / "f.sig"));
  EXPECT_THAT(trusted_keys_of_text("\n# fine\nrsa AAAA\n").status().message(), HasSubstr("line 3"));
  EXPECT_FALSE(trusted_keys_of_text("ed25519 AAAA").ok());
  EXPECT_FALSE(trusted_keys_of_text(pair.secret_line).ok());
  EXPECT_TRUE(trusted_keys_of_text("require-signature # always\n")->require_signature);
}

TEST(Signature, WhereItIsRequiredOnlyPacksOfTrustedKeysServe) {
  const TemporaryDirectory folder, user;
  const Signer signer, stranger;
  const std::string good = make(folder / "good.pack", {row(1, "good")}),
                    unsigned_pack = make(folder / "u.pack", {row(2, "u")}),
                    foreign = make(folder / "foreign.pack", {row(3, "foreign")}),
                    tampered = make(folder / "t.pack", {row(4, "t")});
  ASSERT_TRUE(sign_file(good, signer.keys.secret_line));
  ASSERT_TRUE(sign_file(foreign, stranger.keys.secret_line));
  ASSERT_TRUE(sign_file(tampered, signer.keys.secret_line));
  make(folder / "t.pack", {row(4, "changed")});
  Options options = with(user, {good, unsigned_pack, foreign, tampered});
  const auto served = [&] {
    const auto store = Store::open(options);
    std::string all;
    for (int n = 1; n <= 4; ++n) all += schedule_of(*store, n) + ",";
    return all;
  };
  EXPECT_EQ(served(), "good,u,foreign,,");  // what has a signature must match it, always
  options.require_signature = true;
  EXPECT_EQ(served(), ",,,,");
  options.trusted_keys = signer.trusted_file;
  EXPECT_EQ(served(), "good,,,,");
  const Signer strict("require-signature\n");
  options.require_signature = false;
  options.trusted_keys = strict.trusted_file;
  EXPECT_EQ(served(), ",,,,");  // the list may require it, too
  options.trusted_keys.clear();
  const Environment list("SACCADE_TRUSTED_KEYS", strict.trusted_file);
  EXPECT_EQ(served(), ",,,,");
}

TEST(Signature, AListOfKeysThatCannotBeTrustedClosesAllPacks) {
  const TemporaryDirectory folder, user;
  const Signer signer;
  Options options = with(user, {make(folder / "a.pack", {row(1, "one")})});
  options.trusted_keys = signer.trusted_file;
  EXPECT_EQ(schedule_of(*Store::open(options), 1), "one");
  std::filesystem::permissions(signer.trusted_file, std::filesystem::perms(0666));
  EXPECT_EQ(schedule_of(*Store::open(options), 1), "");
  EXPECT_THAT(Store::open(options)->verify(), ElementsAre(HasSubstr("no pack is opened")));
  options.trusted_keys = folder / "missing";
  EXPECT_EQ(schedule_of(*Store::open(options), 1), "");
}

TEST(PackPath, NamesFilesAndFoldersInTheirOrder) {
  const TemporaryDirectory folder, single, user;
  make(folder / "b.pack", {row(1, "b")});
  make(folder / "a.pack", {row(1, "a")});
  write_file(folder / ".hidden.pack", "");
  write_file(folder / "a.pack.sig", "");
  write_file(folder / "notes.txt", "");
  const std::string other = make(single / "other.name", {row(2, "other")});
  const Environment path("SACCADE_PACK_PATH", ":" + other + "::" + folder.path() + ":" + folder.path() + ":/nowhere");
  EXPECT_THAT(pack_files({"/given"}), ElementsAre("/given", other, folder / "a.pack", folder / "b.pack", "/nowhere"));
  Options options = testing::options_in(user.path());
  EXPECT_EQ(schedule_of(*Store::open(options), 2), "other");
  options.finds_packs = false;
  EXPECT_EQ(schedule_of(*Store::open(options), 2), "");
}

}  // namespace
}  // namespace saccade::cache
