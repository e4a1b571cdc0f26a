// A loader of relocatable ELF64 x86-64 objects, for the CPU kernels that Clang has just made and for those of the
// cache.
//
// Why not LLVM's ORC: opening libLLVM takes about 15 ms and libclang-cpp another 10 ms, three times the budget of a
// warm start, and a machine that only runs cached kernels has no LLVM. A kernel object is one text section, a few
// constant sections and half a dozen kinds of relocation, so that fresh and cached objects can take this one path.
//
// The bytes may come from a damaged or hostile file: every offset, size and index is checked against the buffer, and
// what does not fit is a Status. (Code that is well formed but malicious cannot be told apart: trust in the store is
// the cache's job.)
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/status.h"

namespace saccade::cpu {

/// Code in memory. Pages are never writable and executable at once. Unmapped when destroyed.
class LoadedObject {
 public:
  /// Errors: `invalid_argument` for malformed bytes, `unsupported` for a relocation, section or external symbol that
  /// kernels do not have, `out_of_memory` when nothing can be mapped.
  static Expected<std::shared_ptr<const LoadedObject>> load(std::string_view object);

  ~LoadedObject();
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  /// Address of a global function that the object defines, or null.
  void* find(const std::string& symbol) const;

 private:
  LoadedObject() = default;
  friend class ObjectReader;

  void* base_ = nullptr;
  std::size_t size_ = 0;
  std::unordered_map<std::string, void*> symbols_;
};

}  // namespace saccade::cpu
