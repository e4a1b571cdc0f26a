// The cache on hostile files. The first byte of the input says which way:
//   'u', 'p'  the rest is a database file, as the user's or as a pack;
//   'r'       the rest is a script of changes to the rows of a sound database, with checksums that hold when the script
//   says
//             so: whoever can write the file can compute them too.
// Whatever the file: no crash, no hang, no allocation that the file's size does not justify, and the store goes on in
// memory.
#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "cache/hooks.h"
#include "cache/row.h"
#include "cache/sql.h"

namespace {

using namespace saccade::cache;
namespace fs = std::filesystem;

const fs::path& work_directory() {
  static const fs::path path = [] {
    setenv("SACCADE_LOG", "off", 1);
    std::string pattern = (access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + std::string("/saccade-fuzz-XXXXXX");
    std::atexit([] {
      std::error_code error;
      fs::remove_all(work_directory(), error);
    });
    return fs::path(mkdtemp(pattern.data()));
  }();
  return path;
}

void require(bool condition) {
  if (!condition) std::abort();
}

std::string code() { return std::string(3000, 'c') + "end"; }

/// Every way to read the file, and one to write it.
void use(const Options& options) {
  const auto store = Store::open(options);
  for (const char* key : {"one", "two", "three"}) {
    store->find_binary(key);
    store->find_tuned(key);
    store->find_rejected(key);
  }
  store->list();
  store->statistics();
  store->verify();
  store->put_binary("new", {"code", ""}, "new");
  store->flush();
  require(store->find_binary("new").has_value());
  static_cast<void>(store->trim(0));
}

void use_file(std::string_view bytes, bool as_pack) {
  const fs::path directory = work_directory() / "file";
  fs::remove_all(directory);
  fs::create_directory(directory);
  fs::permissions(directory, fs::perms::owner_all);
  const fs::path file = directory / (as_pack ? "pack.db" : "cache-v1.db");
  std::ofstream(file, std::ios::binary) << bytes;
  Options options;
  options.directory = directory;
  options.memory_only = as_pack;
  if (as_pack) options.packs = {file};
  use(options);
}

const std::string& sound_database() {
  static const std::string image = [] {
    Options options;
    options.directory = work_directory() / "sound";
    {
      const auto store = Store::open(options);
      for (const char* key : {"one", "two", "three"}) {
        store->put_binary(key, {code(), "{}"}, key);
        store->put_tuned(key, {"{\"tile_m\": 64}", "{}"}, key);
        store->put_rejected(key, {"reason"}, key);
      }
    }
    std::ifstream file(options.directory + "/cache-v1.db", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  return image;
}

/// Takes values from the input until it is used up; then zeros.
class Script {
 public:
  explicit Script(std::string_view bytes) : bytes_(bytes) {}
  bool is_at_end() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const char first = bytes_.front();
    bytes_.remove_prefix(1);
    return static_cast<std::uint8_t>(first);
  }
  std::int64_t integer() {
    std::uint64_t value = 0;
    for (int count = byte() % 9; count > 0; --count) value = value << 8 | byte();
    return static_cast<std::int64_t>(value);
  }
  std::string text() {
    const std::size_t size = std::min<std::size_t>(byte(), bytes_.size());
    const std::string taken(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return taken;
  }

 private:
  std::string_view bytes_;
};

/// A row as the script says, from a sound one: any column changed, then sealed again or not.
StoredRow changed_row(Table table, std::string_view key, Script& script) {
  StoredRow row = encode(table, key, {code(), "{}", "label"}, 1, 2);
  const std::uint8_t what = script.byte();
  if (what & 1) row.content = script.text();
  if (what & 2) row.key = script.text();
  if (what & 4) row.content_size = script.integer();
  if (what & 8) row.key_size = script.integer();
  if (what & 16) row.content_codec = script.integer();
  if (what & 32) row.key_codec = script.integer();
  if (what & 64) row.details = script.text();
  if (what & 128) row.last_used = script.integer();
  row.checksum = script.byte() % 4 == 0 ? script.text() : checksum_of(table, row);
  return row;
}

void put_row(sqlite3* database, Table table, std::string_view key, const StoredRow& row) {
  const Hooks hooks = default_hooks();
  const KeyHash hash = hooks.hash(key);
  sqlite3_stmt* statement = nullptr;
  const char* sql = sql::kStatements[static_cast<std::size_t>(table)][1];
  require(sqlite3_prepare_v2(database, sql, -1, &statement, nullptr) == SQLITE_OK);
  const auto blob = [statement](int index, const std::string& bytes) {
    sqlite3_bind_blob64(statement, index, bytes.empty() ? "" : bytes.data(), bytes.size(), SQLITE_STATIC);
  };
  sqlite3_bind_blob(statement, 1, hash.data(), static_cast<int>(hash.size()), SQLITE_STATIC);
  blob(2, row.checksum);
  sqlite3_bind_int64(statement, 3, row.key_codec);
  sqlite3_bind_int64(statement, 4, row.key_size);
  sqlite3_bind_int64(statement, 5, row.content_codec);
  sqlite3_bind_int64(statement, 6, row.content_size);
  sqlite3_bind_int64(statement, 7, row.created);
  sqlite3_bind_int64(statement, 8, row.last_used);
  sqlite3_bind_text64(statement, 9, row.label.data(), row.label.size(), SQLITE_STATIC, SQLITE_UTF8);
  blob(10, row.details);
  blob(11, row.key);
  blob(12, row.content);
  sqlite3_step(statement);
  sqlite3_finalize(statement);
}

void use_changed_rows(std::string_view bytes) {
  const fs::path directory = work_directory() / "rows";
  fs::remove_all(directory);
  fs::create_directory(directory);
  fs::permissions(directory, fs::perms::owner_all);
  const std::string file = directory / "cache-v1.db";
  std::ofstream(file, std::ios::binary) << sound_database();
  sqlite3* database = nullptr;
  require(sqlite3_open(file.c_str(), &database) == SQLITE_OK);
  sqlite3_exec(database, "PRAGMA synchronous=OFF; BEGIN", nullptr, nullptr, nullptr);
  Script script(bytes);
  while (!script.is_at_end()) {
    const std::uint8_t choice = script.byte();
    const Table table = kTables[choice % kTables.size()];
    const std::string_view key = choice & 64 ? "one" : choice & 128 ? "two" : "three";
    put_row(database, table, key, changed_row(table, key, script));
  }
  sqlite3_exec(database, "COMMIT", nullptr, nullptr, nullptr);
  sqlite3_close(database);
  Options options;
  options.directory = directory;
  use(options);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  work_directory();
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'u': use_file(rest, false); break;
    case 'p': use_file(rest, true); break;
    case 'r': use_changed_rows(rest); break;
    default: return -1;  // not worth keeping
  }
  return 0;
}
