# Writes OUTPUT: report_page() with the text of PAGE.
include(${CMAKE_CURRENT_LIST_DIR}/RawString.cmake)
file(READ "${PAGE}" text)
raw_string(pieces "${text}")
file(WRITE "${OUTPUT}" "// Made by cmake/EmbedPage.cmake.
#include \"cli/report_page.h\"

namespace saccade::cli {

std::string_view report_page() {
  static constexpr std::string_view kPage =
${pieces};
  return kPage;
}

}  // namespace saccade::cli
")
