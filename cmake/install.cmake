# `cmake --install` gives the program, the headers and a CMake package:
#   find_package(baton REQUIRED)
#   target_link_libraries(mine PRIVATE baton::exec)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(layers GLOBAL PROPERTY BATON_LAYERS)
foreach(layer ${layers})
  install(TARGETS baton_${layer} EXPORT baton ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY src/baton/${layer} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/baton FILES_MATCHING PATTERN "*.h")
endforeach()
install(TARGETS baton_app RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/baton)
install(EXPORT baton NAMESPACE baton:: DESTINATION ${package_folder})
configure_package_config_file(cmake/baton-config.cmake.in ${PROJECT_BINARY_DIR}/baton-config.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/baton-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/baton-config.cmake ${PROJECT_BINARY_DIR}/baton-config-version.cmake
        DESTINATION ${package_folder})
