// Rows as the program sees them and as the database holds them: compressed, with sizes, codecs and a checksum that
// binds the bytes to the table and the key.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace saccade::cache {

enum class Table : std::uint8_t { binary = 0, tuned = 1, rejected = 2 };
inline constexpr std::array<Table, 3> kTables = {Table::binary, Table::tuned, Table::rejected};

const char* name_of(Table table);  ///< also the name of the SQL table

struct Row {
  std::string content;  ///< code, schedule or reason
  std::string details;  ///< metadata or provenance
  std::string label;
};

enum class Codec : std::int64_t { raw = 0, zstd = 1 };

struct StoredRow {
  std::string checksum;
  std::int64_t key_codec = 0, key_size = 0;          ///< size before compression, bytes
  std::int64_t content_codec = 0, content_size = 0;  ///< size before compression, bytes
  std::int64_t created = 0, last_used = 0;           ///< Unix seconds; last_used is not under the checksum
  std::string label, details, key, content;
};

/// Neither a key nor a content above this is stored or read: a hostile file must not make us allocate more.
inline constexpr std::int64_t kMaximumBlobBytes = std::int64_t{64} << 20;
/// Of tuned rows, of which many are read at once.
inline constexpr std::int64_t kMaximumTunedBytes = std::int64_t{64} << 10;

inline std::int64_t most_bytes(Table table) { return table == Table::tuned ? kMaximumTunedBytes : kMaximumBlobBytes; }

StoredRow encode(Table table, std::string_view key, const Row& row, std::int64_t created, std::int64_t last_used);

/// Over the columns as they lie in the file, so that nothing unverified reaches the decoder. `last_used` changes and
/// stays out.
std::string checksum_of(Table table, const StoredRow& stored);

enum class Decoded { ok, other_key, damaged };

/// Verifies the checksum over the stored bytes, then unpacks; `row` means nothing unless the result is `ok`.
Decoded decode(Table table, std::string_view key, StoredRow stored, Row* row);

/// As `decode` for whatever key the row holds, which is returned.
Decoded decode_any(Table table, StoredRow stored, std::string* key, Row* row);

}  // namespace saccade::cache
