// The hash that rows are indexed by. It only has to spread: the full key is stored in the row and compared on a hit.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace saccade::cache {

using KeyHash = std::array<std::uint8_t, 20>;

/// BLAKE2b-160 of the key bytes.
KeyHash hash_key(std::string_view key);

std::string to_hex(const KeyHash& hash);

/// BLAKE2b-256 over length-prefixed parts, so that bytes cannot move from one part to the next unnoticed.
class Checksum {
 public:
  Checksum();
  Checksum& add(std::string_view part);
  Checksum& add(std::int64_t part);
  std::string finish();  ///< 32 bytes; the object is used up

 private:
  // libsodium's state is 384 bytes, aligned to 64; kept opaque so that its header stays out of ours.
  alignas(64) std::array<unsigned char, 384> state_;
};

}  // namespace saccade::cache
