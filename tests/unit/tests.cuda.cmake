set(here ${CMAKE_CURRENT_LIST_DIR})
saccade_test(test_cuda_family
  SOURCES ${here}/cuda_family_test.cpp ${here}/cuda_sm90_family_test.cpp ${here}/cuda_sm90_launch_test.cpp ${here}/cuda_sm90_cost_test.cpp
          ${here}/cuda_row_tiles_test.cpp ${here}/cuda_warpgroup_walk_test.cpp ${here}/target_test.cpp
  LIBRARIES saccade_generator)
set_source_files_properties(${here}/cuda_warpgroup_walk_test.cpp PROPERTIES COMPILE_OPTIONS -Wno-unknown-pragmas)  # unroll

# Not a test: writes kernels for the experiments in tests/gpu/kernel_dev.
add_executable(kernel_dev_emit EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/gpu/kernel_dev/emit.cpp)
target_link_libraries(kernel_dev_emit PRIVATE saccade_generator third_party_text)
