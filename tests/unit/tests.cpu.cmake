saccade_test(test_object_loader SOURCES ${CMAKE_CURRENT_LIST_DIR}/object_loader_test.cpp LIBRARIES saccade_runtime LABELS cpu)
saccade_test(test_cpu_threads SOURCES ${CMAKE_CURRENT_LIST_DIR}/cpu_threads_test.cpp LIBRARIES saccade_runtime LABELS cpu)
