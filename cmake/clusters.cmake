# The files of clusters/ taken into the program, so that it knows them by name wherever it is run.
#
#   baton_embed_clusters(TARGET)   adds them to the target that src/baton/cluster/catalogue.h belongs to
function(baton_embed_clusters target)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/clusters/*.toml)
  set(entries "")
  list(LENGTH files count)
  foreach(file ${files})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} text)
    string(APPEND entries "    {\"${name}\", R\"toml(${text})toml\"},\n")
  endforeach()
  set(asset ${PROJECT_BINARY_DIR}/clusters/catalogue.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/catalogue.cpp.in ${asset} @ONLY)
  target_sources(${target} PRIVATE ${asset})
endfunction()
