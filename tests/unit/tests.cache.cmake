file(GLOB cache_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/cache_*.cpp)
if(cache_tests)
  saccade_test(test_cache SOURCES ${cache_tests} LIBRARIES saccade_cache third_party::sqlite3)
endif()
