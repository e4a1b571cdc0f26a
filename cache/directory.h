// Where the user database may live. Whoever can write there can run code as this user, so the rules are strict and a
// folder that breaks one is not used at all.
#pragma once

#include <string>

#include "base/status.h"

namespace saccade::cache {

/// From the working directory on; empty when that cannot be told.
std::string absolute_path(const std::string& path);

/// The variable's value; empty when unset or in secure-execution mode (set-user-id programs).
std::string environment(const char* name);

/// The folder by the rule of `Options::directory`, absolute, not yet created; empty when there is none: memory only.
/// In secure-execution mode (set-user-id programs) the environment is not looked at.
std::string choose_directory(const std::string& requested);

/// Creates the folder (mode 0700, parents too) when `create`, and checks it: a real folder and no symbolic link, owned
/// by the effective user, not writable by group or others. Returns its path without symbolic links in its parents.
Expected<std::string> prepare_directory(const std::string& directory, bool create);

/// Checks that `path` is a regular file that only the effective user (or root, or the owner of this library) can
/// change.
Status check_pack_file(const std::string& path);

/// Whether the folder is on a file system known to be local. Only there does WAL's shared memory work; on an unknown or
/// network file system it does not, or only seems to.
bool is_on_local_file_system(const std::string& directory);

}  // namespace saccade::cache
