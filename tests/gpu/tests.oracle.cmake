# Built on every machine; skipped at run time (exit code 77, or GoogleTest's own skip) where there is no CUDA device.
add_executable(test_gpu_grid ${CMAKE_CURRENT_LIST_DIR}/grid_test.cpp)
target_link_libraries(test_gpu_grid PRIVATE saccade_test_support third_party_text)
add_test(NAME test_gpu_grid COMMAND test_gpu_grid)
set_tests_properties(test_gpu_grid PROPERTIES LABELS gpu TIMEOUT 1500 SKIP_RETURN_CODE 77)
# A sample of its kernels compiles on every machine that has NVRTC.
add_test(NAME test_gpu_grid_compiles COMMAND test_gpu_grid --compile sm_90a --threads 2)
set_tests_properties(test_gpu_grid_compiles PROPERTIES LABELS nvrtc TIMEOUT 600 SKIP_RETURN_CODE 77
                     ENVIRONMENT SACCADE_GRID_EVERY=12)

file(GLOB traps CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cpu/traps_*_test.cpp)
saccade_test(test_gpu_traps
  SOURCES ${traps} ${CMAKE_SOURCE_DIR}/tests/cpu/traps_fixture.cpp ${CMAKE_CURRENT_LIST_DIR}/grid_traps_device.cpp
  LIBRARIES saccade_test_support LABELS gpu TIMEOUT 1500)
