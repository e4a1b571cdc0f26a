# cmake -DSACCADE=COMMAND -DPACK=FILE -DROWS=FILES -DCACHE=FOLDER -P make_pack.cmake: a pack with its kernels; without them, and
# saying so, where they cannot be compiled. Kernels are kept in CACHE, so that a later build compiles only what is new.
get_filename_component(folder ${PACK} DIRECTORY)
file(MAKE_DIRECTORY ${folder})
execute_process(COMMAND ${SACCADE} cache pack ${ROWS} --output ${PACK} --binaries --cache-dir ${CACHE}
                RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(failed)
  message(WARNING "${PACK} has tuned schedules but no kernels; hosts compile them. ${said}")
  execute_process(COMMAND ${SACCADE} cache pack ${ROWS} --output ${PACK} --no-cache COMMAND_ERROR_IS_FATAL ANY)
endif()
