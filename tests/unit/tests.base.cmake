saccade_test(test_base SOURCES ${CMAKE_CURRENT_LIST_DIR}/dtype_test.cpp ${CMAKE_CURRENT_LIST_DIR}/log_test.cpp LIBRARIES saccade_base)
