#include "runtime/compiler.h"

namespace saccade {

Expected<const Compiler*> compiler_for(Target::Kind kind) {
  return kind == Target::Kind::cuda ? nvrtc_compiler() : clang_compiler();
}

}  // namespace saccade
