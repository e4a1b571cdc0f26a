saccade_test(test_tuner
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/tuner_statistics_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/tuner_decision_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/tuner_candidates_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/tuner_race_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/tuner_session_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/tuner_protocol_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/tuner_inputs_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/tuner_gate_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/tuner_profile_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/tuner_table_span_test.cpp
  LIBRARIES saccade_tuner)
