# Texts taken into the program, so that it has them wherever it is run: the Python files of src/baton/sheet/twins, which PyTorch
# scripts are put together from, and the programs of handin/.
#
#   baton_embed_texts(LAYER HEADER FUNCTION ROOT FILE...)   adds baton::LAYER::FUNCTION() of the header: path below ROOT and text of each
function(baton_embed_texts layer header function root)
  set(entries "")
  list(LENGTH ARGN count)
  foreach(file ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${root} OUTPUT_VARIABLE name)
    file(READ ${file} text)
    string(APPEND entries "    {\"${name}\", R\"embedded(${text})embedded\"},\n")
  endforeach()
  set(asset ${PROJECT_BINARY_DIR}/texts/${function}.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/texts.cpp.in ${asset} @ONLY)
  target_sources(baton_${layer} PRIVATE ${asset})
endfunction()

function(baton_embed_sheets)
  set(twins ${PROJECT_SOURCE_DIR}/src/baton/sheet/twins)
  file(GLOB scripts CONFIGURE_DEPENDS ${twins}/*.py)
  baton_embed_texts(sheet baton/sheet/texts.h twin_texts ${twins} ${scripts})
  set(handin ${PROJECT_SOURCE_DIR}/handin)
  file(GLOB_RECURSE programs CONFIGURE_DEPENDS ${handin}/*.cpp ${handin}/*.h ${handin}/CMakeLists.txt)
  baton_embed_texts(sheet baton/sheet/texts.h program_texts ${handin} ${programs})
endfunction()
