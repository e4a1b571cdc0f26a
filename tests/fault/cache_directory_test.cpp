// Where the database may live, and what happens where it may not: memory only, one warning, nothing changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "cache/directory.h"
#include "cache/store.h"
#include "tests/fault/cache_child.h"
#include "tests/unit/cache_support.h"

namespace saccade::cache {
namespace {

using testing::ChildResult;
using testing::options_in;
using testing::run_in_child;
using testing::TemporaryDirectory;

/// In a child: the store works in memory and says so once. `prepare` runs in the child first.
ChildResult use_without_disk(const Options& options, const std::function<bool()>& prepare = [] { return true; }) {
  return run_in_child([&] {
    if (!prepare()) return 77;
    const auto store = Store::open(options);
    CHILD_EXPECT(store->user_path().empty());
    store->put_binary("key", {"code", ""}, "");
    store->flush();
    CHILD_EXPECT(store->find_binary("key").has_value());
    CHILD_EXPECT(store->lock("key", 0) == nullptr);
    return 0;
  });
}

void expect_memory_only(const Options& options) {
  const ChildResult result = use_without_disk(options);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.warnings(), 1) << result.errors;
}

void clear_environment() {
  for (const char* name : {"SACCADE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) unsetenv(name);
}

TEST(CacheDirectory, ComesFromTheFirstVariableThatSaysOne) {
  const auto result = run_in_child([] {
    clear_environment();
    CHILD_EXPECT(choose_directory("") == "");
    setenv("HOME", "/home/someone/", 1);
    CHILD_EXPECT(choose_directory("") == "/home/someone/.cache/saccade");
    setenv("XDG_CACHE_HOME", "relative/is/invalid", 1);
    CHILD_EXPECT(choose_directory("") == "/home/someone/.cache/saccade");
    setenv("XDG_CACHE_HOME", "/xdg", 1);
    CHILD_EXPECT(choose_directory("") == "/xdg/saccade");
    setenv("SACCADE_CACHE_DIR", "", 1);
    CHILD_EXPECT(choose_directory("") == "/xdg/saccade");
    setenv("SACCADE_CACHE_DIR", "/own", 1);
    CHILD_EXPECT(choose_directory("") == "/own");
    CHILD_EXPECT(choose_directory("/asked") == "/asked");
    return 0;
  });
  EXPECT_EQ(result.exit_code, 0) << result.errors;
}

TEST(CacheDirectory, WithoutHomeTheCacheStaysInMemory) {
  const TemporaryDirectory directory;
  const ChildResult result = use_without_disk(Options(), [&] {
    clear_environment();
    return chdir(directory.path().c_str()) == 0;
  });
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.warnings(), 1) << result.errors;
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(CacheDirectory, IsMadeForTheUserAloneWhateverTheUmask) {
  const TemporaryDirectory directory;
  const auto result = run_in_child([&] {
    umask(0);
    Store::open(options_in(directory / "a/b/c"))->put_binary("key", {"code", ""}, "");
    return 0;
  });
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  for (const char* part : {"a", "a/b", "a/b/c"})
    EXPECT_EQ(std::filesystem::status(directory / part).permissions(), std::filesystem::perms::owner_all) << part;
  const auto file = std::filesystem::status(directory / "a/b/c/cache-v1.db").permissions();
  EXPECT_EQ(file & (std::filesystem::perms::group_write | std::filesystem::perms::others_write),
            std::filesystem::perms::none);
}

TEST(CacheDirectory, ThatOthersCanWriteIsRefusedAndLeftAsItIs) {
  for (const unsigned mode : {0777u, 0720u, 0702u, 01777u}) {
    const TemporaryDirectory directory;
    ASSERT_EQ(chmod(directory.path().c_str(), mode), 0);
    expect_memory_only(options_in(directory.path()));
    struct stat status{};
    ASSERT_EQ(stat(directory.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, mode);
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  }
}

TEST(CacheDirectory, ThatIsASymbolicLinkIsRefused) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "real");
  std::filesystem::permissions(directory / "real", std::filesystem::perms::owner_all);
  std::filesystem::create_symlink("real", directory / "link");
  expect_memory_only(options_in(directory / "link"));
  expect_memory_only(options_in(directory / "link/"));
  EXPECT_TRUE(std::filesystem::is_empty(directory / "real"));
}

TEST(CacheDirectory, UnderASymbolicLinkIsFine) {
  // Home directories on clusters often are links.
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "real");
  std::filesystem::create_symlink("real", directory / "home");
  const auto store = Store::open(options_in(directory / "home/cache"));
  EXPECT_EQ(store->user_path(), directory / "real/cache/cache-v1.db");
}

TEST(CacheDirectory, ADatabaseFileThatIsASymbolicLinkIsNotFollowed) {
  const TemporaryDirectory directory, elsewhere;
  Store::open(options_in(elsewhere.path()))->put_binary("key", {"code", ""}, "");
  const std::string target = elsewhere / "cache-v1.db", before = testing::read_file(target);
  std::filesystem::create_symlink(target, directory / "cache-v1.db");
  const ChildResult result = use_without_disk(options_in(directory.path()));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.warnings(), 1) << result.errors;
  EXPECT_EQ(testing::read_file(target), before);
}

TEST(CacheDirectory, ThatIsAFileIsRefused) {
  const TemporaryDirectory directory;
  testing::write_file(directory / "file", "content");
  expect_memory_only(options_in(directory / "file"));
  expect_memory_only(options_in(directory / "file/below"));
  EXPECT_EQ(testing::read_file(directory / "file"), "content");
}

TEST(CacheDirectory, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder to another user";
  const TemporaryDirectory directory;
  ASSERT_EQ(chown(directory.path().c_str(), testing::kNobody, testing::kNobody), 0);
  expect_memory_only(options_in(directory.path()));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

/// Runs as a user whom permissions stop, in a folder of that user.
ChildResult run_as_nobody_in(const TemporaryDirectory& directory, const std::function<int()>& body) {
  return run_in_child([&] {
    if (geteuid() == 0) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(directory.path()))
        CHILD_EXPECT(chown(entry.path().c_str(), testing::kNobody, testing::kNobody) == 0);
      CHILD_EXPECT(chown(directory.path().c_str(), testing::kNobody, testing::kNobody) == 0);
      CHILD_EXPECT(testing::become_nobody());
    }
    return body();
  });
}

TEST(CacheDirectory, ThatCannotBeMadeLeavesTheCacheInMemory) {
  const TemporaryDirectory directory;
  const ChildResult result = run_as_nobody_in(directory, [&] {
    CHILD_EXPECT(chmod(directory.path().c_str(), 0500) == 0);
    const auto store = Store::open(options_in(directory / "a/b"));
    CHILD_EXPECT(store->user_path().empty());
    store->put_binary("key", {"code", ""}, "");
    CHILD_EXPECT(store->find_binary("key").has_value());
    return 0;
  });
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.warnings(), 1) << result.errors;
}

/// In a folder that its user cannot write: what was in it is found, what is new stays in memory.
ChildResult use_unwritable(const TemporaryDirectory& directory, const Options& options) {
  return run_as_nobody_in(directory, [&] {
    for (const std::string& file : testing::files_starting_with(directory.path(), "cache-v1"))
      CHILD_EXPECT(chmod(file.c_str(), 0400) == 0);
    CHILD_EXPECT(chmod(directory.path().c_str(), 0500) == 0);
    const auto store = Store::open(options);
    CHILD_EXPECT(store->user_path() == directory / "cache-v1.db");
    store->put_binary("new", {"new code", ""}, "");
    store->flush();
    CHILD_EXPECT(store->find_binary("new").has_value());
    const auto found = store->find_binary("key");
    CHILD_EXPECT(found.has_value() && found->code == "code");
    CHILD_EXPECT(store->lock("key", 0) == nullptr);
    CHILD_EXPECT(store->verify().empty());
    CHILD_EXPECT(store->list().size() == 1);
    return 0;
  });
}

TEST(CacheDirectory, ThatIsReadOnlyIsReadAndNotWritten) {
  for (const bool read_only : {false, true}) {
    for (const bool with_lock_file : {false, true}) {
      const TemporaryDirectory directory;
      Options options = options_in(directory.path());
      Store::open(options)->put_binary("key", {"code", ""}, "");
      options.read_only = read_only;
      if (!with_lock_file) std::filesystem::remove(directory / "cache-v1.db.lock");
      const std::string before = testing::read_file(directory / "cache-v1.db");
      const ChildResult result = use_unwritable(directory, options);
      EXPECT_EQ(result.exit_code, 0) << result.errors;
      EXPECT_EQ(result.warnings(), 0) << result.errors;
      EXPECT_EQ(testing::read_file(directory / "cache-v1.db"), before);
    }
  }
}

TEST(CacheDirectory, ThatIsReadOnlyWithALogNotWrittenBackSaysSo) {
  const TemporaryDirectory live, directory;
  const auto store = Store::open(options_in(live.path()));
  store->put_binary("key", {"code", ""}, "");
  store->flush();
  for (const char* name : {"cache-v1.db", "cache-v1.db-wal"})  // as a copy or a crash leaves them
    testing::write_file(directory / name, testing::read_file(live / name));
  ASSERT_GT(std::filesystem::file_size(directory / "cache-v1.db-wal"), 0u);
  const ChildResult result = run_as_nobody_in(directory, [&] {
    CHILD_EXPECT(chmod(directory.path().c_str(), 0500) == 0);
    const auto unwritable = Store::open(options_in(directory.path()));
    CHILD_EXPECT(unwritable->user_path().empty());
    return 0;
  });
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.warnings(), 1) << result.errors;
  EXPECT_THAT(result.errors, ::testing::HasSubstr("was not closed well"));
}

/// Makes something that is no regular file.
using Maker = std::function<void(const std::string& path)>;
const std::pair<const char*, Maker> kIrregular[] = {
    {"pipe", [](const std::string& path) { ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); }},
    {"folder", [](const std::string& path) { ASSERT_EQ(mkdir(path.c_str(), 0700), 0); }},
    {"symbolic link", [](const std::string& path) { ASSERT_EQ(symlink("elsewhere", path.c_str()), 0); }},
    {"socket",
     [](const std::string& path) {
       sockaddr_un address{};
       address.sun_family = AF_UNIX;
       path.copy(address.sun_path, sizeof address.sun_path - 1);
       const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
       ASSERT_GE(descriptor, 0);
       ASSERT_EQ(bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
       close(descriptor);
     }},
};

TEST(CacheDirectory, WithAPipeOrTheLikeInAFilesPlaceIsNotUsed) {
  for (const auto& [kind, make] : kIrregular) {
    for (const char* name : {"cache-v1.db", "cache-v1.db-wal", "cache-v1.db-shm", "cache-v1.db-journal"}) {
      for (const bool beside_a_database : {false, true}) {
        SCOPED_TRACE(std::string(kind) + " as " + name + (beside_a_database ? " beside a database" : ""));
        const TemporaryDirectory directory(testing::fast_directory());
        if (beside_a_database) Store::open(options_in(directory.path()))->put_binary("key", {"code", ""}, "");
        std::filesystem::remove(directory / name);
        make(directory / name);
        const auto start = std::chrono::steady_clock::now();
        const ChildResult result = use_without_disk(options_in(directory.path()));  // killed when it hangs
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{20});
        EXPECT_EQ(result.exit_code, 0) << result.errors;
        EXPECT_EQ(result.warnings(), 1) << result.errors;
        EXPECT_THAT(result.errors, ::testing::HasSubstr("is no regular file"));
        EXPECT_NE(std::filesystem::symlink_status(directory / name).type(), std::filesystem::file_type::regular);
      }
    }
  }
}

TEST(CacheDirectory, ALinkInThePlaceOfTheLocksIsNotFollowed) {
  for (const bool to_a_folder : {true, false}) {
    const TemporaryDirectory directory, elsewhere;
    const std::string target = to_a_folder ? elsewhere.path() : elsewhere / "missing";
    ASSERT_EQ(symlink(target.c_str(), (directory / "locks").c_str()), 0);
    const ChildResult result = run_in_child([&] {
      const auto store = Store::open(options_in(directory.path()));
      CHILD_EXPECT(store->lock("one", 0) == nullptr);
      CHILD_EXPECT(store->lock("two", 0) == nullptr);
      CHILD_EXPECT(std::filesystem::is_empty(elsewhere.path()));
      store->put_binary("key", {"code", ""}, "");
      store->flush();
      CHILD_EXPECT(store->list().size() == 1);
      return 0;
    });
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.warnings(), 1) << result.errors;
    EXPECT_THAT(result.errors, ::testing::HasSubstr("locks is a symbolic link"));
    EXPECT_TRUE(std::filesystem::is_empty(elsewhere.path()));
  }
}

TEST(CacheDirectory, ThatIsTakenAwayWhileInUseCostsOnlyTheEntries) {
  const TemporaryDirectory directory;
  const ChildResult result = run_in_child([&] {
    const auto store = Store::open(options_in(directory / "cache"));
    store->put_binary("one", {"code", ""}, "");
    store->flush();
    std::filesystem::remove_all(directory / "cache");
    store->put_binary("two", {"code", ""}, "");
    store->flush();
    CHILD_EXPECT(store->find_binary("one").has_value());
    CHILD_EXPECT(store->find_binary("two").has_value());
    CHILD_EXPECT(!store->find_binary("three").has_value());
    CHILD_EXPECT(store->lock("key", 0) == nullptr);
    store->verify();
    return 0;
  });
  EXPECT_EQ(result.exit_code, 0) << result.errors;
}

TEST(CacheDirectory, EveryDescriptorIsClosedOnExec) {
  const TemporaryDirectory directory;
  const auto open_to_children = [] {
    int count = 0;
    for (int descriptor = 0; descriptor < 256; ++descriptor) {
      const int flags = fcntl(descriptor, F_GETFD);
      count += flags >= 0 && (flags & FD_CLOEXEC) == 0;
    }
    return count;
  };
  const int before = open_to_children();
  const auto store = Store::open(options_in(directory.path()));
  store->put_binary("key", {"code", ""}, "");
  store->flush();
  const auto lock = store->lock("key", 0);
  ASSERT_NE(lock, nullptr);
  EXPECT_EQ(open_to_children(), before);
}

/// Not a test of its own: what the set-user-id copy of this program runs.
TEST(CacheDirectory, DISABLED_PrintsTheChosenDirectory) { std::printf("chosen:%s:\n", choose_directory("").c_str()); }

TEST(CacheDirectory, TheEnvironmentIsIgnoredInASetUserIdProgram) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a program that changes to another user";
  const TemporaryDirectory directory;
  const std::string program = directory / "program";
  std::filesystem::copy_file("/proc/self/exe", program);
  ASSERT_EQ(chmod(directory.path().c_str(), 0755), 0);
  ASSERT_EQ(chown(program.c_str(), testing::kNobody, testing::kNobody), 0);
  const auto chosen_by = [&](unsigned mode) {
    EXPECT_EQ(chmod(program.c_str(), mode), 0);
    const std::string command = "SACCADE_CACHE_DIR=/from/environment " + program +
                                " --gtest_also_run_disabled_tests --gtest_filter=*PrintsTheChosenDirectory";
    std::string output;
    FILE* pipe = popen(command.c_str(), "r");
    char buffer[512];
    while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) output += buffer;
    pclose(pipe);
    return output;
  };
  EXPECT_THAT(chosen_by(0755), ::testing::HasSubstr("chosen:/from/environment:"));
  const std::string secure = chosen_by(04755);
  if (secure.find("chosen:/from/environment:") != std::string::npos && geteuid() == 0) {
    // A nosuid mount would make this test say nothing.
    FAIL() << "the environment was used, or " << directory.path() << " is mounted nosuid";
  }
  EXPECT_THAT(secure, ::testing::HasSubstr("chosen::"));
}

}  // namespace
}  // namespace saccade::cache
