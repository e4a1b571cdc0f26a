# Third-party libraries, all from the distribution's packages.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)

# saccade_find(NAME FILE HEADER): an imported target `third_party::NAME` for a C library, static when asked for.
function(saccade_find name file header)
  if(SACCADE_STATIC_DEPENDENCIES)
    find_library(SACCADE_${name}_LIBRARY lib${file}.a REQUIRED)
  else()
    find_library(SACCADE_${name}_LIBRARY ${file} REQUIRED)
  endif()
  find_path(SACCADE_${name}_INCLUDE ${header} REQUIRED)
  add_library(third_party::${name} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(third_party::${name} PROPERTIES
    IMPORTED_LOCATION ${SACCADE_${name}_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${SACCADE_${name}_INCLUDE})
endfunction()
saccade_find(sqlite3 sqlite3 sqlite3.h)
saccade_find(zstd zstd zstd.h)
saccade_find(sodium sodium sodium.h)

# The portable build must carry no .so, and Debian has no static archive of fmt: there it is header-only, which costs 2 s for each
# source file. spdlog stands in one source file and is header-only everywhere.
add_library(third_party_text INTERFACE)
if(SACCADE_STATIC_DEPENDENCIES)
  target_link_libraries(third_party_text INTERFACE fmt::fmt-header-only nlohmann_json::nlohmann_json)
  # Debian's spdlog asks for the shared fmt even when it is header-only itself.
  set_property(TARGET spdlog::spdlog_header_only PROPERTY INTERFACE_LINK_LIBRARIES Threads::Threads fmt::fmt-header-only)
else()
  target_link_libraries(third_party_text INTERFACE fmt::fmt nlohmann_json::nlohmann_json)
endif()
