# The files of profiles/ taken into the program, so that it knows them by name wherever it is run.
#
#   baton_embed_profiles(TARGET)   adds them to the target that src/baton/cost/software.h belongs to
function(baton_embed_profiles target)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/profiles/*.toml)
  set(entries "")
  foreach(file ${files})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} text)
    string(APPEND entries "      {\"${name}\", R\"toml(${text})toml\"},\n")
  endforeach()
  set(asset ${PROJECT_BINARY_DIR}/profiles/profiles.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/profiles.cpp.in ${asset} @ONLY)
  target_sources(${target} PRIVATE ${asset})
endfunction()
