# Workers that misbehave on demand; tests only.
add_executable(saccade_scripted_worker ${CMAKE_CURRENT_LIST_DIR}/tuner_scripted_worker.cpp)
add_executable(saccade_faulty_worker ${CMAKE_CURRENT_LIST_DIR}/tuner_faulty_worker.cpp)
target_link_libraries(saccade_faulty_worker PRIVATE saccade_tuner)

saccade_test(test_tuner_process
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/tuner_process_test.cpp
  LIBRARIES saccade_tuner LABELS fault)
target_compile_definitions(test_tuner_process PRIVATE
  SCRIPTED_WORKER="$<TARGET_FILE:saccade_scripted_worker>")
add_dependencies(test_tuner_process saccade_scripted_worker)

if(SACCADE_CLANG)
  saccade_test(test_tuner_faults
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/tuner_faults_test.cpp ${CMAKE_CURRENT_LIST_DIR}/tuner_sweep_test.cpp
    LIBRARIES saccade_tuner LABELS fault cpu)
  target_compile_definitions(test_tuner_faults PRIVATE
    FAULTY_WORKER="$<TARGET_FILE:saccade_faulty_worker>" WORKER="$<TARGET_FILE:saccade_worker>")
  add_dependencies(test_tuner_faults saccade_faulty_worker saccade_worker saccade_clang)
endif()
