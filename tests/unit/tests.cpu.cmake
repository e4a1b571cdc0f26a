saccade_test(test_object_loader SOURCES ${CMAKE_CURRENT_LIST_DIR}/object_loader_test.cpp LIBRARIES saccade_runtime LABELS cpu)
