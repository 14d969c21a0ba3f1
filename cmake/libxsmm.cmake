# libxsmm ships no CMake package; its static library is what Debian has.
find_library(LIBXSMM_LIBRARY xsmm REQUIRED)
find_library(LIBXSMM_NOBLAS_LIBRARY xsmmnoblas REQUIRED)
find_path(LIBXSMM_INCLUDE_DIR libxsmm.h REQUIRED)

add_library(libxsmm INTERFACE)
target_include_directories(libxsmm SYSTEM INTERFACE $<BUILD_INTERFACE:${LIBXSMM_INCLUDE_DIR}>)
target_link_libraries(libxsmm INTERFACE ${LIBXSMM_LIBRARY} ${LIBXSMM_NOBLAS_LIBRARY} ${CMAKE_DL_LIBS})
install(TARGETS libxsmm EXPORT baton)
