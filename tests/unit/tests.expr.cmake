set(expr_support ${CMAKE_SOURCE_DIR}/tests/support/random_program.cpp)

file(GLOB expr_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/expr_*_test.cpp)
list(REMOVE_ITEM expr_tests ${CMAKE_CURRENT_LIST_DIR}/expr_emission_test.cpp)
saccade_test(test_expr SOURCES ${expr_tests} ${expr_support} LIBRARIES saccade_generator)
target_compile_definitions(test_expr PRIVATE SACCADE_TEST_GOLDEN_DIR="${CMAKE_CURRENT_LIST_DIR}/golden")

# Compiles emitted text with the build's own compiler.
saccade_test(test_expr_emission
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/expr_emission_test.cpp ${CMAKE_CURRENT_LIST_DIR}/expr_compiled.cpp ${expr_support}
  LIBRARIES saccade_generator ${CMAKE_DL_LIBS})
target_compile_definitions(test_expr_emission PRIVATE
  SACCADE_TEST_COMPILER="${CMAKE_CXX_COMPILER}" SACCADE_TEST_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
  SACCADE_TEST_BINARY_DIR="${CMAKE_BINARY_DIR}")

file(GLOB problem_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/problem_*_test.cpp)
saccade_test(test_problem SOURCES ${problem_tests} ${expr_support} LIBRARIES saccade_generator)
