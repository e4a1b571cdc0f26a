#include "cache/signature.h"

#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>

#include "cache/temporary_file.h"

namespace saccade::cache {
namespace {

constexpr std::string_view kSecretTag = "saccade-secret-key", kSignatureTag = "saccade-signature",
                           kAlgorithm = "ed25519";
constexpr std::string_view kBlank = " \t\r\n";
constexpr std::size_t kMostSignatureBytes = 4096;
constexpr int kBase64 = sodium_base64_VARIANT_ORIGINAL;

using Secret = std::array<unsigned char, crypto_sign_SECRETKEYBYTES>;
using Public = std::array<unsigned char, crypto_sign_PUBLICKEYBYTES>;
using Bytes = std::array<unsigned char, crypto_sign_BYTES>;
static_assert(sizeof(Public) == sizeof(PublicKey::bytes));

template <std::size_t size>
std::string base64(const std::array<unsigned char, size>& bytes) {
  std::string text(sodium_base64_ENCODED_LEN(size, kBase64), '\0');
  sodium_bin2base64(text.data(), text.size(), bytes.data(), size, kBase64);
  text.pop_back();  // the terminator
  return text;
}

template <std::size_t size>
std::optional<std::array<unsigned char, size>> bytes_of_base64(std::string_view text) {
  std::array<unsigned char, size> bytes{};
  std::size_t length = 0;
  const int result =
      sodium_base642bin(bytes.data(), size, text.data(), text.size(), nullptr, &length, nullptr, kBase64);
  if (result != 0 || length != size) return std::nullopt;
  return bytes;
}

/// The next word of `text`, which is cut off.
std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlank));
  text.remove_prefix(word.size());
  return word;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = std::min(text.find_first_not_of(kBlank), text.size());
  return text.substr(first, text.find_last_not_of(kBlank) + 1 - first);
}

/// Without what would end the line or begin a comment.
std::string one_line(std::string_view text) {
  std::string line(text);
  for (char& c : line)
    if (static_cast<unsigned char>(c) < ' ' || c == '#') c = '_';
  return line;
}

Status unreadable(const std::string& path) {
  return Status::io_error(fmt::format("{} cannot be read ({})", path, std::strerror(errno)));
}

Expected<crypto_sign_state> state_of_file(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return unreadable(path);
  if (!S_ISREG(status.st_mode)) return Status::io_error(fmt::format("{} is no regular file", path));
  std::ifstream file(path, std::ios::binary);
  if (!file) return unreadable(path);
  crypto_sign_state state;
  crypto_sign_init(&state);
  std::vector<char> piece(std::size_t{1} << 16);
  while (file) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    crypto_sign_update(&state, reinterpret_cast<const unsigned char*>(piece.data()),
                       static_cast<unsigned long long>(file.gcount()));
  }
  if (file.bad()) return unreadable(path);
  return state;
}

struct SignatureText {
  Public key;
  Bytes bytes;
};

std::optional<SignatureText> signature_of_text(std::string_view text) {
  if (take_word(text) != kSignatureTag || take_word(text) != kAlgorithm) return std::nullopt;
  const auto key = bytes_of_base64<sizeof(Public)>(take_word(text));
  const auto bytes = bytes_of_base64<sizeof(Bytes)>(take_word(text));
  if (!key || !bytes || !trimmed(text).empty()) return std::nullopt;
  return SignatureText{*key, *bytes};
}

}  // namespace

KeyPair make_key_pair(std::string_view comment) {
  [[maybe_unused]] static const int initialised = sodium_init();
  Public key{};
  Secret secret{};
  crypto_sign_keypair(key.data(), secret.data());
  KeyPair pair{fmt::format("{} {} {}\n", kSecretTag, kAlgorithm, base64(secret)),
               fmt::format("{} {} {}\n", kAlgorithm, base64(key), one_line(trimmed(comment)))};
  sodium_memzero(secret.data(), secret.size());
  return pair;
}

Status sign_file(const std::string& path, std::string_view secret_line) {
  std::string_view rest = secret_line;
  const bool tagged = take_word(rest) == kSecretTag && take_word(rest) == kAlgorithm;
  auto secret = tagged ? bytes_of_base64<sizeof(Secret)>(take_word(rest)) : std::nullopt;
  if (!secret || !trimmed(rest).empty())
    return Status::invalid_argument(
        fmt::format("no secret key: a line \"{} {} ...\" is wanted", kSecretTag, kAlgorithm));
  SACCADE_ASSIGN(crypto_sign_state state, state_of_file(path));
  Bytes bytes{};
  crypto_sign_final_create(&state, bytes.data(), nullptr, secret->data());
  Public key{};
  crypto_sign_ed25519_sk_to_pk(key.data(), secret->data());
  sodium_memzero(secret->data(), secret->size());
  SACCADE_ASSIGN(TemporaryFile signature, TemporaryFile::create_beside(path + ".sig"));
  std::ofstream file(signature.name(), std::ios::binary | std::ios::trunc);
  file << fmt::format("{} {} {} {}\n", kSignatureTag, kAlgorithm, base64(key), base64(bytes));
  file.close();
  if (!file) return Status::io_error(fmt::format("{}.sig cannot be written ({})", path, std::strerror(errno)));
  return signature.keep();
}

Expected<TrustedKeys> trusted_keys_of_text(std::string_view text) {
  TrustedKeys trusted;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    if (line == "require-signature") {
      trusted.require_signature = true;
      continue;
    }
    const std::string_view algorithm = take_word(line);
    const auto key = algorithm == kAlgorithm ? bytes_of_base64<sizeof(Public)>(take_word(line)) : std::nullopt;
    if (!key)
      return Status::invalid_argument(
          fmt::format("line {}: \"{} KEY COMMENT\" or \"require-signature\" is wanted", number, kAlgorithm));
    trusted.keys.push_back({*key, std::string(trimmed(line))});
  }
  return trusted;
}

Expected<SignatureCheck> check_signature(const std::string& path, const TrustedKeys& trusted) {
  const std::string beside = path + ".sig";
  struct stat status{};
  if (stat(beside.c_str(), &status) != 0) {
    if (errno == ENOENT) return SignatureCheck{};
    return unreadable(beside);
  }
  if (!S_ISREG(status.st_mode)) return SignatureCheck{Signature::bad, ""};
  std::string text(kMostSignatureBytes + 1, '\0');
  std::ifstream file(beside, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file && !file.eof()) return unreadable(beside);
  text.resize(static_cast<std::size_t>(file.gcount()));
  const auto signature = text.size() > kMostSignatureBytes ? std::nullopt : signature_of_text(text);
  if (!signature) return SignatureCheck{Signature::bad, ""};
  SACCADE_ASSIGN(crypto_sign_state state, state_of_file(path));
  if (crypto_sign_final_verify(&state, signature->bytes.data(), signature->key.data()) != 0)
    return SignatureCheck{Signature::bad, ""};
  const auto known = std::find_if(trusted.keys.begin(), trusted.keys.end(),
                                  [&](const PublicKey& key) { return key.bytes == signature->key; });
  if (known == trusted.keys.end()) return SignatureCheck{Signature::unknown, base64(signature->key)};
  return SignatureCheck{Signature::good, known->comment.empty() ? base64(known->bytes) : known->comment};
}

}  // namespace saccade::cache
