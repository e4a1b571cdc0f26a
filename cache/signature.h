// Ed25519 signatures of packs. A checksum says that a file is whole; a signature says who made it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace saccade::cache {

/// One line of text each, with a newline. The secret one is for whoever makes packs, the public one for whoever opens them.
struct KeyPair {
  std::string secret_line;  ///< "saccade-secret-key ed25519 BASE64"
  std::string public_line;  ///< "ed25519 BASE64 COMMENT"
};
KeyPair make_key_pair(std::string_view comment);

/// Signs all bytes of the file (Ed25519ph, RFC 8032) and puts the signature beside it, as `path`.sig.
/// Errors: `invalid_argument` for what is no secret key, `io_error`.
Status sign_file(const std::string& path, std::string_view secret_line);

struct PublicKey {
  std::array<unsigned char, 32> bytes;
  std::string comment;
};

/// Whom the administrator trusts. A file of lines: public keys, "require-signature", comments after '#'.
struct TrustedKeys {
  std::vector<PublicKey> keys;
  bool require_signature = false;
};
/// `invalid_argument` that names the line and what is wrong with it.
Expected<TrustedKeys> trusted_keys_of_text(std::string_view text);

enum class Signature : std::uint8_t {
  absent,
  good,     ///< of a trusted key
  unknown,  ///< sound, but of a key that is not trusted
  bad,      ///< not of these bytes, or no signature at all
};
struct SignatureCheck {
  Signature state = Signature::absent;
  std::string key;  ///< comment of the trusted key, or the unknown key itself
};
/// Looks at `path`.sig. Errors: `io_error` when one of the two files cannot be read.
Expected<SignatureCheck> check_signature(const std::string& path, const TrustedKeys& trusted);

}  // namespace saccade::cache
