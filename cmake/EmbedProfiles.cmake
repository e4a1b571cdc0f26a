# Writes OUTPUT: shipped_profiles() with the text of each of FILES under its name without folder and extension.
include(${CMAKE_CURRENT_LIST_DIR}/RawString.cmake)
list(SORT FILES)
set(entries "")
foreach(file IN LISTS FILES)
  file(READ "${file}" text)
  get_filename_component(name "${file}" NAME_WE)
  raw_string(pieces "${text}")
  string(APPEND entries "    {\"${name}\",\n${pieces}},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Made by cmake/EmbedProfiles.cmake.
#include \"tuner/profile.h\"

namespace saccade::tuner {
namespace {

constexpr ShippedProfile kProfiles[] = {
${entries}};

}  // namespace

std::span<const ShippedProfile> shipped_profiles() { return kProfiles; }

}  // namespace saccade::tuner
")
