# Writes OUTPUT: report_page() with the text of PAGE, as raw strings of at most 12 KB (a compiler need not take a longer literal).
file(READ "${PAGE}" text)
string(LENGTH "${text}" length)
set(pieces "")
set(offset 0)
while(offset LESS length)
  string(SUBSTRING "${text}" ${offset} 12000 piece)
  string(APPEND pieces "R\"page(${piece})page\"\n")
  math(EXPR offset "${offset} + 12000")
endwhile()
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
