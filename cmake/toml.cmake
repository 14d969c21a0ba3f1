# Files taken into the program, so that it knows them by name wherever it is run.
#
#   baton_embed_toml(TARGET FOLDER SOURCE)   adds to the target SOURCE, made from cmake/SOURCE.in: @entries@ are the names and texts of the
#                                            TOML files in FOLDER, @count@ how many there are
function(baton_embed_toml target folder source)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.toml)
  set(entries "")
  list(LENGTH files count)
  foreach(file ${files})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} text)
    string(APPEND entries "    {\"${name}\", R\"toml(${text})toml\"},\n")
  endforeach()
  set(asset ${PROJECT_BINARY_DIR}/${folder}/${source})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${source}.in ${asset} @ONLY)
  target_sources(${target} PRIVATE ${asset})
endfunction()
