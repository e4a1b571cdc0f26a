# One executable that can be copied to a machine with a GPU; everything in it is skipped, visibly, where there is none.
saccade_test(test_gpu_runtime
             SOURCES ${CMAKE_CURRENT_LIST_DIR}/runtime_support.cpp ${CMAKE_CURRENT_LIST_DIR}/runtime_device_test.cpp
                     ${CMAKE_CURRENT_LIST_DIR}/runtime_engine_test.cpp
             LIBRARIES saccade_tuner LABELS gpu)
