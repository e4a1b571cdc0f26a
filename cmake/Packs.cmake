# The packs that ship: the tuned rows of cache/packs/MODEL/*.jsonl, with the kernels that they ask for where an NVRTC is found. They
# are installed to share/saccade/packs and, in the Python package, to saccade/packs.
option(SACCADE_PACKS "Make the tuned packs" ON)
if(NOT SACCADE_PACKS OR CMAKE_CROSSCOMPILING)
  add_custom_target(saccade_packs)
  return()
endif()

set(SACCADE_PACK_FILES)
file(GLOB models CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cache/packs/*)
foreach(folder IN LISTS models)
  get_filename_component(model ${folder} NAME)
  file(GLOB rows CONFIGURE_DEPENDS ${folder}/*.jsonl)
  if(NOT rows)
    continue()
  endif()
  set(pack ${CMAKE_BINARY_DIR}/packs/${model}.pack)
  add_custom_command(OUTPUT ${pack}
    COMMAND ${CMAKE_COMMAND} -DSACCADE=$<TARGET_FILE:saccade_command> -DPACK=${pack} "-DROWS=${rows}"
            -DCACHE=${CMAKE_BINARY_DIR}/pack-cache -P ${CMAKE_SOURCE_DIR}/cmake/make_pack.cmake
    DEPENDS saccade_command ${rows} ${CMAKE_SOURCE_DIR}/cmake/make_pack.cmake
    COMMENT "Making the tuned pack ${model}" VERBATIM)
  list(APPEND SACCADE_PACK_FILES ${pack})
endforeach()
add_custom_target(saccade_packs ALL DEPENDS ${SACCADE_PACK_FILES})

install(FILES ${SACCADE_PACK_FILES} DESTINATION ${CMAKE_INSTALL_DATADIR}/saccade/packs)
if(SACCADE_PYTHON)
  install(FILES ${SACCADE_PACK_FILES} DESTINATION saccade/packs COMPONENT python EXCLUDE_FROM_ALL)
endif()
