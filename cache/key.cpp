#include "cache/key.h"

#include <sodium.h>

#include "cache/store.h"

namespace saccade::cache {
namespace {

void append_integer(std::string& out, std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

void append_field(std::string& out, std::string_view name, char type, std::string_view value) {
  append_integer(out, name.size());
  out.append(name);
  out.push_back(type);
  append_integer(out, value.size());
  out.append(value);
}

/// libsodium picks its SIMD implementation of BLAKE2b in sodium_init; hashing works without, but slower.
void initialise_sodium() { [[maybe_unused]] static const int once = sodium_init(); }

/// Takes 8 bytes from the front of `bytes`; nothing when there are fewer.
std::optional<std::uint64_t> take_integer(std::string_view& bytes) {
  if (bytes.size() < 8) return std::nullopt;
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  bytes.remove_prefix(8);
  return value;
}

/// Takes what append_integer counted from the front of `bytes`.
std::optional<std::string_view> take_counted(std::string_view& bytes) {
  const std::optional<std::uint64_t> size = take_integer(bytes);
  if (!size || *size > bytes.size()) return std::nullopt;
  const std::string_view taken = bytes.substr(0, *size);
  bytes.remove_prefix(*size);
  return taken;
}

}  // namespace

std::optional<std::vector<KeyField>> fields_of(std::string_view key) {
  std::vector<KeyField> fields;
  while (!key.empty()) {
    const auto name = take_counted(key);
    if (!name || key.empty()) return std::nullopt;
    const char type = key.front();
    key.remove_prefix(1);
    auto value = take_counted(key);
    if (!value || (type != 's' && type != 'i') || (type == 'i' && value->size() != 8)) return std::nullopt;
    KeyField field{.name = std::string(*name), .is_number = type == 'i', .text = {}, .number = 0};
    if (field.is_number) {
      field.number = static_cast<std::int64_t>(*take_integer(*value));
    } else {
      field.text = *value;
    }
    fields.push_back(std::move(field));
  }
  return fields;
}

KeyBuilder& KeyBuilder::add(std::string_view name, std::string_view value) {
  append_field(bytes_, name, 's', value);
  return *this;
}

KeyBuilder& KeyBuilder::add(std::string_view name, std::int64_t value) {
  std::string bytes;
  append_integer(bytes, static_cast<std::uint64_t>(value));
  append_field(bytes_, name, 'i', bytes);
  return *this;
}

KeyHash hash_key(std::string_view key) {
  initialise_sodium();
  KeyHash hash;
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(key.data()), key.size(), nullptr,
                     0);
  return hash;
}

std::string to_hex(const KeyHash& hash) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * hash.size());
  for (const std::uint8_t byte : hash) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

static crypto_generichash_state* state_in(std::array<unsigned char, 384>& bytes) {
  static_assert(sizeof(crypto_generichash_state) <= 384 && alignof(crypto_generichash_state) <= 64);
  return reinterpret_cast<crypto_generichash_state*>(bytes.data());
}

Checksum::Checksum() {
  initialise_sodium();
  crypto_generichash_init(state_in(state_), nullptr, 0, 32);
}

Checksum& Checksum::add(std::string_view part) {
  add(static_cast<std::int64_t>(part.size()));
  crypto_generichash_update(state_in(state_), reinterpret_cast<const unsigned char*>(part.data()), part.size());
  return *this;
}

Checksum& Checksum::add(std::int64_t part) {
  std::string bytes;
  append_integer(bytes, static_cast<std::uint64_t>(part));
  crypto_generichash_update(state_in(state_), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  return *this;
}

std::string Checksum::finish() {
  std::string digest(32, '\0');
  crypto_generichash_final(state_in(state_), reinterpret_cast<unsigned char*>(digest.data()), digest.size());
  return digest;
}

}  // namespace saccade::cache
