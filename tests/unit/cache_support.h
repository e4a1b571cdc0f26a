// What the tests of the cache share: a folder that goes away, seeded bytes, and raw access to a database file.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "cache/hooks.h"
#include "cache/store.h"

namespace saccade::cache::testing {

/// A fresh folder, mode 0700, removed at the end.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "saccade-cache-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code error;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, error);
    std::filesystem::remove_all(path_, error);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Where hundreds of databases are made and synced: memory when there is such a file system.
inline std::filesystem::path fast_directory() {
  return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
}

/// A generator whose seed is printed; SACCADE_TEST_SEED repeats a run.
inline std::mt19937_64 seeded_generator() {
  const char* given = std::getenv("SACCADE_TEST_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::cout << "seed: " << seed << "\n";
  return std::mt19937_64(seed);
}

/// About as compressible as a cubin: words from a small set, with noise between.
inline std::string code_like_bytes(std::size_t size, std::mt19937_64& generator) {
  std::vector<std::uint64_t> words(256);
  for (auto& word : words) word = generator();
  std::string bytes;
  while (bytes.size() < size) {
    const std::uint64_t draw = generator();
    const std::uint64_t word = draw % 4 == 0 ? draw : words[draw / 4 % words.size()];
    bytes.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  bytes.resize(size);
  return bytes;
}

inline Options options_in(const std::string& directory) {
  Options options;
  options.directory = directory;
  return options;
}

inline std::string key_of(int number) { return KeyBuilder().add("number", number).bytes(); }

/// Runs SQL on a file that no store has open; fails the test when SQLite does.
inline void execute_sql(const std::string& path, const std::string& sql) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  char* message = nullptr;
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK)
      << sql << ": " << (message == nullptr ? "" : message);
  sqlite3_free(message);
  sqlite3_close(database);
}

/// First column of the first row; -1 when there is none.
inline std::int64_t query_integer(const std::string& path, const std::string& sql) {
  sqlite3* database = nullptr;
  sqlite3_stmt* statement = nullptr;
  std::int64_t value = -1;
  EXPECT_EQ(sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READWRITE, nullptr), SQLITE_OK);
  EXPECT_EQ(sqlite3_prepare_v2(database, sql.c_str(), -1, &statement, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
  if (sqlite3_step(statement) == SQLITE_ROW) value = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  sqlite3_close(database);
  return value;
}

/// A pack as a release would build it: compact, in rollback mode, read-only.
inline std::string make_pack(const std::string& user_database, const std::string& pack) {
  execute_sql(user_database, "VACUUM INTO '" + pack + "'");
  execute_sql(pack, "PRAGMA journal_mode=DELETE; ANALYZE");
  std::filesystem::permissions(pack, std::filesystem::perms::owner_read);
  return pack;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// Paths in `directory` whose name starts with `prefix`.
inline std::vector<std::string> files_starting_with(const std::string& directory, const std::string& prefix) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path().string());
  return found;
}

}  // namespace saccade::cache::testing
