set(here ${CMAKE_CURRENT_LIST_DIR})
saccade_test(test_nvrtc SOURCES ${here}/nvrtc_search_test.cpp ${here}/nvrtc_ptxas_log_test.cpp ${here}/nvrtc_compiler_test.cpp
                                ${here}/nvrtc_sm90_kernel_test.cpp
             LIBRARIES saccade_runtime)
saccade_test(test_tensor_map SOURCES ${here}/tensor_map_test.cpp LIBRARIES saccade_runtime)
saccade_test(test_keys SOURCES ${here}/keys_test.cpp LIBRARIES saccade_runtime)
# These stand on doubles of the layers below; their objects come first on the link line, so the archives' own are not taken.
saccade_test(test_engine SOURCES ${here}/engine_fakes.cpp ${here}/engine_prepare_test.cpp ${here}/engine_ladder_test.cpp ${here}/engine_run_test.cpp
             LIBRARIES saccade_runtime)
saccade_test(test_c_abi SOURCES ${here}/c_abi_test.cpp ${here}/c_abi_cpu_test.cpp LIBRARIES saccade)
