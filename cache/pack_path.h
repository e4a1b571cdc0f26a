// Where packs are looked for, and which of them may be opened.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cache/signature.h"
#include "cache/store.h"

namespace saccade::cache {

inline constexpr const char* kPackSuffix = ".pack";

/// Files of `requested`, then those that $SACCADE_PACK_PATH names (files and folders, between colons), then those in `packs` beside
/// this library (a Python package), then those of the system (share/saccade/packs of the library's prefix and of /usr/local and
/// /usr). Of folders all files *.pack, by name. Each file once. In secure-execution mode the environment is not looked at.
std::vector<std::string> pack_files(const std::vector<std::string>& requested);

/// The keys of /etc/saccade/trusted-keys, of $SACCADE_TRUSTED_KEYS and of `file` (empty: none) together; any of them may require
/// signatures. A file must be safe from others' hands, as packs must (check_pack_file). Errors name the file.
Expected<TrustedKeys> trusted_keys(const std::string& file);

/// Ok when the pack's file and signature allow it to be opened; else one line that says why not. What has a signature must have
/// a sound one; where signatures are required it must be of a trusted key.
Status check_pack(const std::string& path, const TrustedKeys& trusted);

}  // namespace saccade::cache
