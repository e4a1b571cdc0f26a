// Shared libraries as files: where the loader would find one and which build it is, without opening it.
#pragma once

#include <string>
#include <string_view>

namespace saccade {

/// Empty in secure-execution mode (set-user-id programs), where the environment is not the owner's.
std::string environment(const char* name);

bool is_file(const std::string& path);

/// The loader's own order: what is loaded already, LD_LIBRARY_PATH, its cache, the default folders. Empty when it is in
/// none of them.
std::string find_on_loader_path(std::string_view name);

/// Path of the shared library `name` in the text of an ld.so.cache ("glibc-ld.so.cache1.1"), empty when it is not there
/// or the text is damaged.
std::string path_in_loader_cache(std::string_view cache, std::string_view name);

/// Hexadecimal GNU build id of an ELF file, empty when it has none.
std::string build_id_of(const std::string& path);

/// Name, size and build id of a library; no directory.
std::string identity_of_file(const std::string& path);

}  // namespace saccade
