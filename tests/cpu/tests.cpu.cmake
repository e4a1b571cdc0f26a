if(SACCADE_CLANG)
  saccade_test(test_cpu_kernel
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/kernel_test.cpp ${CMAKE_CURRENT_LIST_DIR}/kernel_support.cpp
    LIBRARIES saccade_tuner LABELS cpu TIMEOUT 900)
endif()
