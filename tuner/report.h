// What a tuning run leaves behind in words: provenance of the tuned row, rows of the measurement journal.
#pragma once

#include <optional>
#include <string>

#include "tuner/session.h"
#include "tuner/tune.h"

namespace saccade::tuner {

/// JSON of the tuned row: times, noise, margins, runners-up (the next four), trials, date, device, driver, compiler.
std::string provenance_of(const TuneRequest& request, const TuneReport& report);

/// Names a measurement policy in rows: "quick", ...
const char* name_of(TuningPolicy policy);

std::string to_json(const Remembered& measured, const Schedule& standard);
/// Nothing when the text is malformed or was measured against another default.
std::optional<Remembered> remembered_from_json(const std::string& text, const Schedule& standard);

/// Key of one candidate's measurement: beside tuned rows in the same table, never equal to one of their keys.
std::string measurement_key(const std::string& tuned_key, const Schedule& schedule);

}  // namespace saccade::tuner
