file(GLOB support CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/*.cpp)
add_library(saccade_test_support STATIC ${support})
target_link_libraries(saccade_test_support PUBLIC saccade_tuner PRIVATE third_party_text)

saccade_test(test_oracle
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/grid_oracle_test.cpp ${CMAKE_CURRENT_LIST_DIR}/grid_trap_list_test.cpp
  LIBRARIES saccade_test_support)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # GCC 12 with sanitizers takes std::regex's own std::function for uninitialised (bug 105562)
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/grid_trap_list_test.cpp PROPERTIES COMPILE_OPTIONS -Wno-maybe-uninitialized)
endif()
target_compile_definitions(test_oracle PRIVATE SACCADE_TEST_SOURCES="${CMAKE_SOURCE_DIR}/tests")
if(SACCADE_CLANG)
  saccade_test(test_cpu_grid SOURCES ${CMAKE_CURRENT_LIST_DIR}/grid_test.cpp
               LIBRARIES saccade_test_support LABELS cpu TIMEOUT 1500)
  file(GLOB traps CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/traps_*_test.cpp)
  saccade_test(test_cpu_traps
    SOURCES ${traps} ${CMAKE_CURRENT_LIST_DIR}/traps_fixture.cpp ${CMAKE_CURRENT_LIST_DIR}/traps_device_cpu.cpp
    LIBRARIES saccade_test_support LABELS cpu TIMEOUT 900)
endif()
