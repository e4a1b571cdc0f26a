# Needs CPU kernels, so the Clang library, and an installable tree: every target must be built first. A sanitizer's runtime would
# have to be linked into the example too.
if(TARGET saccade_clang AND NOT "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_RELWITHDEBINFO}" MATCHES "fsanitize")
  add_test(NAME check_install COMMAND ${CMAKE_CURRENT_LIST_DIR}/check_install.sh ${CMAKE_BINARY_DIR})
  set_tests_properties(check_install PROPERTIES LABELS install TIMEOUT 600)
endif()
