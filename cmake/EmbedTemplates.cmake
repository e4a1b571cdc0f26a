# Writes OUTPUT: embedded_templates() with the text of ROOT/NAME for each of NAMES, as raw strings of at most 12 KB
# (a compiler need not take a longer literal). `templates/cuda/x.h` is embedded as "saccade_templates/cuda/x.h".
list(SORT NAMES)
set(entries "")
foreach(name IN LISTS NAMES)
  file(READ "${ROOT}/${name}" text)
  string(LENGTH "${text}" length)
  set(pieces "")
  set(offset 0)
  while(offset LESS length)
    string(SUBSTRING "${text}" ${offset} 12000 piece)
    string(APPEND pieces "R\"template(${piece})template\"\n")
    math(EXPR offset "${offset} + 12000")
  endwhile()
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
