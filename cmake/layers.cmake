# One folder of src/baton = one target = one namespace = one layer.
#
#   baton_layer(NAME [USES layer...] SOURCES file... [LINKS target...] [PRIVATE_LINKS target...])
#
# Each layer's headers are reached through a folder of their own that holds nothing but that layer, so an include of a
# layer that is not named in USES (or by those named) fails to compile.
function(baton_layer name)
  cmake_parse_arguments(layer "" "" "USES;SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  set(folder ${PROJECT_SOURCE_DIR}/src/baton/${name})
  list(TRANSFORM layer_SOURCES PREPEND ${folder}/)
  add_library(baton_${name} STATIC ${layer_SOURCES})
  add_library(baton::${name} ALIAS baton_${name})
  # So that the Python module can hold it too. Hidden symbols are reached as directly as in a program.
  set_target_properties(baton_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                                 VISIBILITY_INLINES_HIDDEN ON)

  set(view ${PROJECT_BINARY_DIR}/layers/${name})
  file(MAKE_DIRECTORY ${view}/baton)
  file(CREATE_LINK ${folder} ${view}/baton/${name} SYMBOLIC)
  target_include_directories(baton_${name} PUBLIC $<BUILD_INTERFACE:${view}> $<INSTALL_INTERFACE:include>)
  target_compile_features(baton_${name} PUBLIC cxx_std_20)
  baton_compile_options(baton_${name})

  baton_compile_together(baton_${name} ${layer_SOURCES})
  list(TRANSFORM layer_USES PREPEND baton_)
  target_link_libraries(baton_${name} PUBLIC ${layer_USES} ${layer_LINKS} PRIVATE ${layer_PRIVATE_LINKS})
  set_property(GLOBAL APPEND PROPERTY BATON_LAYERS ${name})
endfunction()

# Reading headers is most of what compiling takes: with BATON_UNITY it is done once per folder. Experiments, which all have the same names
# of their own, are compiled one by one.
function(baton_compile_together target)
  if(NOT BATON_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(source ${ARGN})
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    cmake_path(GET source PARENT_PATH folder)
    if(NOT folder STREQUAL src/baton/lab/experiments)
      string(MAKE_C_IDENTIFIER ${folder} group)
      set_source_files_properties(${PROJECT_SOURCE_DIR}/${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
    endif()
  endforeach()
endfunction()

# Optimization for code that is compiled often and takes little time to run: the command line, the laboratory around its measurements, and the tests.
function(baton_optimize_lightly target)
  if(NOT EMSCRIPTEN)  # there the linker keeps one version of each template for all, which may be this one's
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# Options that every target of this project is compiled with. Contraction is off: fusing a*b+c must not depend on the
# machine, or the same seed would not give the same bits. No code asks for `errno` after a square root, which would keep loops from becoming
# vector instructions. The three warnings are false ones of GCC 12 about strings that are put together.
# If the sources of a folder are compiled as one, two of them may use the same name, and a class may be made of names of one source alone.
function(baton_compile_options target)
  set(alone -Wshadow)
  if(BATON_UNITY)
    set(alone $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local$<SEMICOLON>-Wno-subobject-linkage>)
  endif()
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic ${alone} -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers
                                           $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds$<SEMICOLON>-Wno-restrict$<SEMICOLON>-Wno-stringop-overflow>
                                           $<$<PLATFORM_ID:Emscripten>:-Wno-shorten-64-to-32>
                                           -ffp-contract=off -fno-math-errno $<$<BOOL:${BATON_WERROR}>:-Werror>)
  if(BATON_MARCH)
    target_compile_options(${target} PRIVATE -march=${BATON_MARCH})
  endif()
  if(BATON_SANITIZE)
    # With sanitizers GCC takes parts of std::regex for uninitialized.
    target_compile_options(${target} PRIVATE -fsanitize=${BATON_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_link_options(${target} PUBLIC -fsanitize=${BATON_SANITIZE})
  endif()
  if(BATON_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()
