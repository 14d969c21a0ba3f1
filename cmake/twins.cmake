# The Python files of src/baton/sheet/twins taken into the program: PyTorch scripts are put together from them.
#
#   baton_embed_twins(TARGET)   adds them to the target that src/baton/sheet/twins.h belongs to
function(baton_embed_twins target)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/baton/sheet/twins/*.py)
  set(entries "")
  list(LENGTH files count)
  foreach(file ${files})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} text)
    string(APPEND entries "    {\"${name}\", R\"python(${text})python\"},\n")
  endforeach()
  set(asset ${PROJECT_BINARY_DIR}/twins/texts.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/twins.cpp.in ${asset} @ONLY)
  target_sources(${target} PRIVATE ${asset})
endfunction()
