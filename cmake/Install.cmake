# The install tree: headers, libraries, the command, and what find_package and pkg-config need.
include(CMakePackageConfigHelpers)

install(TARGETS saccade EXPORT saccade LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS saccade_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${CMAKE_SOURCE_DIR}/include/saccade/saccade.h ${CMAKE_SOURCE_DIR}/include/saccade/saccade.hpp
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/saccade)

set(SACCADE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/saccade)
install(EXPORT saccade NAMESPACE saccade:: FILE saccade-targets.cmake DESTINATION ${SACCADE_CMAKE_DIR})
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/saccade-config.cmake.in ${CMAKE_BINARY_DIR}/saccade-config.cmake
                              INSTALL_DESTINATION ${SACCADE_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/saccade-config-version.cmake COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH SACCADE_PREFIX_FROM_PKGCONFIG /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_SOURCE_DIR}/cmake/saccade.pc.in ${CMAKE_BINARY_DIR}/saccade.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/saccade-config.cmake ${CMAKE_BINARY_DIR}/saccade-config-version.cmake
        DESTINATION ${SACCADE_CMAKE_DIR})
install(FILES ${CMAKE_BINARY_DIR}/saccade.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
