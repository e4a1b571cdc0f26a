file(GLOB cache_faults CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/cache_*.cpp)
saccade_test(test_cache_faults SOURCES ${cache_faults} LIBRARIES saccade_cache third_party::sqlite3 LABELS fault)
