# `cmake --install` gives the program, the headers and a CMake package:
#   find_package(baton REQUIRED)
#   target_link_libraries(mine PRIVATE baton::strategy baton::devices)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(layers GLOBAL PROPERTY BATON_LAYERS)
foreach(layer ${layers})
  install(TARGETS baton_${layer} EXPORT baton ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY src/baton/${layer} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/baton FILES_MATCHING PATTERN "*.h")
endforeach()
install(TARGETS baton_app RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# The manual page and the shells' completion, from the program's own list of commands and flags. They are written here and not by the
# build, which a launcher may have started as one of several ranks.
set(manual ${PROJECT_BINARY_DIR}/baton.1)
set(completion ${PROJECT_BINARY_DIR}/baton.bash)
set(completion_for_zsh ${PROJECT_BINARY_DIR}/baton.zsh)
install(CODE "execute_process(COMMAND \"$<TARGET_FILE:baton_app>\" man OUTPUT_FILE \"${manual}\" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND \"$<TARGET_FILE:baton_app>\" completion bash OUTPUT_FILE \"${completion}\" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND \"$<TARGET_FILE:baton_app>\" completion zsh OUTPUT_FILE \"${completion_for_zsh}\" COMMAND_ERROR_IS_FATAL ANY)")
install(FILES ${manual} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${completion} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME baton)
install(FILES ${completion_for_zsh} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _baton)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/baton)
install(EXPORT baton NAMESPACE baton:: DESTINATION ${package_folder})
configure_package_config_file(cmake/baton-config.cmake.in ${PROJECT_BINARY_DIR}/baton-config.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/baton-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/baton-config.cmake ${PROJECT_BINARY_DIR}/baton-config-version.cmake
        DESTINATION ${package_folder})
