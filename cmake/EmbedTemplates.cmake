# Writes OUTPUT: embedded_templates() with the text of ROOT/NAME for each of NAMES. `templates/cuda/x.h` is embedded as
# "saccade_templates/cuda/x.h".
include(${CMAKE_CURRENT_LIST_DIR}/RawString.cmake)
list(SORT NAMES)
set(entries "")
foreach(name IN LISTS NAMES)
  file(READ "${ROOT}/${name}" text)
  raw_string(pieces "${text}")
  string(APPEND entries "    {\"saccade_templates/${name}\",\n${pieces}},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Made by cmake/EmbedTemplates.cmake.
#include \"generator/family.h\"

namespace saccade {
namespace {

constexpr EmbeddedTemplate kTemplates[] = {
${entries}};

}  // namespace

std::span<const EmbeddedTemplate> embedded_templates() { return kTemplates; }

}  // namespace saccade
")
