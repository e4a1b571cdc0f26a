// From SQLite's result codes to ours; for database*.cpp only.
#pragma once

#include "cache/database.h"

namespace saccade::cache {

Outcome outcome_of(int sqlite_result_code);

}  // namespace saccade::cache
