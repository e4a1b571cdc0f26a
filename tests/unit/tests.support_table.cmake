saccade_test(test_support_table SOURCES ${CMAKE_CURRENT_LIST_DIR}/support_table_test.cpp LIBRARIES saccade_runtime)
target_compile_definitions(test_support_table PRIVATE SACCADE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
saccade_test(test_shipped_packs SOURCES ${CMAKE_CURRENT_LIST_DIR}/shipped_packs_test.cpp LIBRARIES saccade_tuner)
target_compile_definitions(test_shipped_packs PRIVATE SACCADE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
