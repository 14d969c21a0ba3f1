# Installs Baton into an empty folder, builds a user's program on nothing but that, and runs it.
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(flags "")
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE}")
endif()
foreach(command
    "${CMAKE_COMMAND};--install;${BUILD};--prefix;${WORK}/prefix"
    "${CMAKE_COMMAND};-S;${SOURCE}/project;-B;${WORK}/build;-DCMAKE_PREFIX_PATH=${WORK}/prefix;-DCMAKE_CXX_COMPILER=${COMPILER};-DCMAKE_CXX_FLAGS=${flags}"
    "${CMAKE_COMMAND};--build;${WORK}/build"
    "${WORK}/build/mine"
    "${WORK}/prefix/bin/baton;devices")
  execute_process(COMMAND ${command} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${command}\nended with ${code}:\n${out}${err}")
  endif()
endforeach()
