# libsaccade.so: the C interface and every layer below it. Nothing but saccade_* leaves it, so a program with its own SQLite, fmt
# or libstdc++ symbols is not disturbed.
file(GLOB SACCADE_API_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/api/*.cpp)

add_library(saccade SHARED ${SACCADE_API_SOURCES})
add_library(saccade::saccade ALIAS saccade)
target_include_directories(saccade PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(saccade PRIVATE $<BUILD_INTERFACE:saccade_tuner> $<BUILD_INTERFACE:third_party_text>)
target_link_options(saccade PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/saccade.map -Wl,--gc-sections)
if(NOT "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_RELWITHDEBINFO}" MATCHES "fsanitize")
  target_link_options(saccade PRIVATE -Wl,--no-undefined)  # a sanitizer's symbols come from the executable
endif()
set_target_properties(saccade PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION 0 LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/saccade.map
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
# Opened and started at run time, from beside it.
add_dependencies(saccade saccade_worker)
if(TARGET saccade_clang)
  add_dependencies(saccade saccade_clang)
endif()
