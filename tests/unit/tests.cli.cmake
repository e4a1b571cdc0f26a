saccade_test(test_readers
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/reader_npy_test.cpp ${CMAKE_CURRENT_LIST_DIR}/reader_safetensors_test.cpp
  LIBRARIES saccade_readers)
saccade_test(test_cli
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/cli_printable_test.cpp ${CMAKE_CURRENT_LIST_DIR}/cli_rules_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/cli_workload_test.cpp
  LIBRARIES saccade_cli)
saccade_test(test_cli_command
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/cli_command_test.cpp
  LIBRARIES saccade_readers saccade_generator)
target_compile_definitions(test_cli_command PRIVATE SACCADE_COMMAND="$<TARGET_FILE:saccade_command>"
                           SACCADE_SOURCE="${CMAKE_SOURCE_DIR}")
add_dependencies(test_cli_command saccade_command saccade_worker)
