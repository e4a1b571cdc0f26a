saccade_test(test_readers
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/reader_npy_test.cpp ${CMAKE_CURRENT_LIST_DIR}/reader_safetensors_test.cpp
  LIBRARIES saccade_readers)
