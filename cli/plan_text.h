// Plans and verifications in words.
#pragma once

#include <string>

#include "cli/output.h"
#include "cli/verification.h"
#include "runtime/engine.h"

namespace saccade::cli {

/// Schedule, where it and its binary came from, and how long preparing took: lines with a common indent.
std::string plan_text(const PlanReport& report);
/// "within the bound: error 1.2e-07 of 3.4e-07 (all 1536 rows)" or what failed.
Text verification_text(const Verification& verification, bool with_lse);

}  // namespace saccade::cli
