# The report page: one HTML file made from web/ and taken into the program.
#
#   baton_embed_page(TARGET)   adds it to the target that src/baton/report/page.cpp belongs to
#
# esbuild bundles it. Node.js and npm give it its plots; if they are missing, or npm cannot reach a registry, the page is made
# without. To try again after that: delete `web` in the build directory.
find_program(BATON_ESBUILD esbuild DOC "esbuild 0.17 or newer, which bundles the report page")
if(NOT BATON_ESBUILD)
  message(FATAL_ERROR "esbuild is not there: install it (Debian's and Ubuntu's package esbuild)")
endif()
find_program(BATON_NODE NAMES node nodejs DOC "Node.js, for the plots of the report page")
find_program(BATON_NPM npm DOC "npm, for the plots of the report page")

set(npm "")
if(BATON_NODE AND BATON_NPM)
  execute_process(COMMAND ${BATON_NODE} --version OUTPUT_VARIABLE node_version OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REGEX REPLACE "^v" "" node_version "${node_version}")
  if(node_version VERSION_GREATER_EQUAL 18)
    set(npm ${BATON_NPM})
  endif()
endif()
if(NOT npm)
  message(STATUS "Node.js 18 or newer with npm is not there: the report page will have no plots")
endif()

set(web ${PROJECT_SOURCE_DIR}/web)
file(GLOB web_sources CONFIGURE_DEPENDS ${web}/src/*)

# baton_page(NAME [NPM program]): a page at ${PROJECT_BINARY_DIR}/web/NAME.html
function(baton_page name)
  cmake_parse_arguments(page "" "NPM" "" ${ARGN})
  set(output ${PROJECT_BINARY_DIR}/web/${name}.html)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DWEB=${web} -DWORK=${PROJECT_BINARY_DIR}/web -DPAGE=${output} -DESBUILD=${BATON_ESBUILD}
            -DNPM=${page_NPM} -P ${web}/assemble.cmake
    DEPENDS ${web_sources} ${web}/assemble.cmake ${web}/package.json ${web}/package-lock.json ${web}/.npmrc
    COMMENT "Making the report page ${name}.html" VERBATIM)
  add_custom_target(baton_${name} DEPENDS ${output})
endfunction()

baton_page(page NPM ${npm})
baton_page(page_without_charts)

function(baton_embed_page target)
  set(page ${PROJECT_BINARY_DIR}/web/page.html)
  set(asset ${PROJECT_BINARY_DIR}/web/page_asset.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/web/page_asset.cpp.in ${asset} @ONLY)
  set_source_files_properties(${asset} PROPERTIES OBJECT_DEPENDS ${page})
  target_sources(${target} PRIVATE ${asset})
  add_dependencies(${target} baton_page)
endfunction()
