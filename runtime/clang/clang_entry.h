// The C boundary of libsaccade_clang.so. Plain C types only, so that the library that opens it needs no LLVM header and
// may be built with another C++ standard library.
#pragma once

#include <cstddef>

extern "C" {

struct SaccadeClangHeader {
  const char* name;  ///< as it is included: "saccade_templates/cpu/forward.h"
  const char* text;
  std::size_t size;
};

struct SaccadeClangInput {
  const char* source;
  std::size_t source_size;
  const SaccadeClangHeader* headers;
  std::size_t header_count;
  const char* const* arguments;  ///< cc1 arguments, without input, output and include path
  std::size_t argument_count;
};

/// Receives the object or the log; the bytes are the callee's until the call returns.
using SaccadeClangSink = void (*)(void* context, const char* data, std::size_t size);

/// Compiles one C++ translation unit to a relocatable ELF object. Files come from `headers` alone: the file system is
/// not read. Gives 0 on success. `log` gets the diagnostics, `object` is called only on success. Thread safe.
using SaccadeClangCompile = int (*)(const SaccadeClangInput* input, void* context, SaccadeClangSink object,
                                    SaccadeClangSink log);
int saccade_clang_compile(const SaccadeClangInput* input, void* context, SaccadeClangSink object, SaccadeClangSink log);

/// The full version of the Clang that is linked, such as "Debian clang version 19.1.7".
using SaccadeClangVersion = const char* (*)();
const char* saccade_clang_version();
}
