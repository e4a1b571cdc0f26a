#include "tuner/runner.h"

namespace saccade::tuner {

const char* name_of(Fault fault) {
  switch (fault) {
    case Fault::none: return "none";
    case Fault::refused: return "refused";
    case Fault::compile_failed: return "compile_failed";
    case Fault::wrong_result: return "wrong_result";
    case Fault::crashed: return "crashed";
    case Fault::hung: return "hung";
    case Fault::interrupted: return "interrupted";
  }
  return "unknown";
}

bool is_permanent(Fault fault) {
  return fault == Fault::compile_failed || fault == Fault::wrong_result || fault == Fault::crashed ||
         fault == Fault::hung;
}

}  // namespace saccade::tuner
