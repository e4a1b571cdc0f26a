// The text of the schema and of every statement. Small columns come first, so that reading them does not walk through
// the blobs' overflow pages.
#pragma once

#include <array>
#include <cstddef>

namespace saccade::cache::sql {

#define SACCADE_TABLE(name)                                                                                  \
  "CREATE TABLE " name                                                                                       \
  "(id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, checksum BLOB NOT NULL, key_codec INTEGER NOT NULL, " \
  "key_size INTEGER NOT NULL, content_codec INTEGER NOT NULL, content_size INTEGER NOT NULL, "               \
  "created INTEGER NOT NULL, last_used INTEGER NOT NULL, label TEXT NOT NULL, details BLOB NOT NULL, "       \
  "key BLOB NOT NULL, content BLOB NOT NULL) STRICT"

#define SACCADE_COLUMNS \
  "checksum, key_codec, key_size, content_codec, content_size, created, last_used, label, details, key, content"

/// As they stand in sqlite_schema afterwards; a file whose schema reads differently is not used.
inline constexpr std::array<const char*, 3> kCreate = {SACCADE_TABLE("binary"), SACCADE_TABLE("tuned"),
                                                       SACCADE_TABLE("rejected")};

#define SACCADE_STATEMENTS(name)                                                                                  \
  {                                                                                                               \
      "SELECT " SACCADE_COLUMNS " FROM " name " WHERE hash = ?1",                                                 \
      "INSERT INTO " name "(hash, " SACCADE_COLUMNS                                                               \
      ") VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, "                                                   \
      "?12) ON CONFLICT(hash) DO UPDATE SET checksum = ?2, key_codec = ?3, key_size = ?4, content_codec = ?5, "   \
      "content_size = ?6, created = ?7, last_used = ?8, label = ?9, details = ?10, key = ?11, content = ?12",     \
      "UPDATE " name " SET last_used = ?2 WHERE hash = ?1 AND last_used <> ?2",                                   \
      "SELECT label, length(key) + length(content) + length(details), last_used FROM " name " ORDER BY id",       \
      "SELECT hash, " SACCADE_COLUMNS " FROM " name " ORDER BY id",                                               \
      "SELECT id, length(key) + length(content) + length(details) FROM " name " ORDER BY last_used, id LIMIT 64", \
      "DELETE FROM " name " WHERE id = ?1",                                                                       \
  }

/// By table, then by `Database::Action`.
inline constexpr std::array<std::array<const char*, 7>, 3> kStatements = {
    {SACCADE_STATEMENTS("binary"), SACCADE_STATEMENTS("tuned"), SACCADE_STATEMENTS("rejected")}};

#undef SACCADE_TABLE
#undef SACCADE_COLUMNS
#undef SACCADE_STATEMENTS

}  // namespace saccade::cache::sql
