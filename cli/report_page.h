// The page of `saccade report` (cli/report.html), embedded at build time.
#pragma once

#include <string_view>

namespace saccade::cli {

/// With a place "/*DATA*/" for the JSON that its script reads.
std::string_view report_page();

}  // namespace saccade::cli
