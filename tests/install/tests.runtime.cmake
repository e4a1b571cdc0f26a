# Needs CPU kernels, so the Clang library, and an installable tree: every target must be built first.
if(TARGET saccade_clang)
  add_test(NAME check_install COMMAND ${CMAKE_CURRENT_LIST_DIR}/check_install.sh ${CMAKE_BINARY_DIR})
  set_tests_properties(check_install PROPERTIES LABELS install TIMEOUT 600)
endif()
