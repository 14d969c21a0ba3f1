# Puts the report page together from web/src: cmake -DWEB=... -DWORK=... -DPAGE=... [-DNPM=...] -P assemble.cmake
#
# With NPM, the packages of package-lock.json are installed into WORK (once for each lock file) and esbuild bundles the
# page with its plots. Without NPM, or when the packages cannot be had, the page is put together without them: the same
# sources one after the other, with charts_missing.js in the place of charts.js.
cmake_minimum_required(VERSION 3.25)
file(MAKE_DIRECTORY ${WORK})

# Whether WORK holds the packages of the lock file now.
function(install_packages done)
  set(${done} FALSE PARENT_SCOPE)
  file(SHA256 ${WEB}/package-lock.json wanted)
  set(stamp ${WORK}/installed)
  if(EXISTS ${stamp})
    file(READ ${stamp} have)
    if(have STREQUAL wanted)
      set(${done} TRUE PARENT_SCOPE)
      return()
    endif()
  endif()
  file(REMOVE ${stamp})
  file(COPY ${WEB}/package.json ${WEB}/package-lock.json ${WEB}/.npmrc DESTINATION ${WORK})
  message(STATUS "Installing the packages of the report page")
  execute_process(COMMAND ${NPM} ci --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries=1
                          --fetch-retry-mintimeout=1000 --fetch-timeout=60000
                  WORKING_DIRECTORY ${WORK} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output
                  TIMEOUT 300)
  if(NOT result EQUAL 0)
    message(STATUS "npm ci failed (${result}):\n${output}")
    return()
  endif()
  file(WRITE ${stamp} ${wanted})
  set(${done} TRUE PARENT_SCOPE)
endfunction()

function(bundle script)
  # Outside WEB a package is found by NODE_PATH. `vega` is narrowed to what plots need.
  execute_process(COMMAND ${CMAKE_COMMAND} -E env NODE_PATH=${WORK}/node_modules
                          ${WORK}/node_modules/.bin/esbuild ${WEB}/src/main.js --bundle --minify --format=iife
                          --target=es2020 --legal-comments=none --log-level=warning --alias:vega=${WEB}/src/vega.js
                          --outfile=${WORK}/page.js
                  RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "esbuild could not bundle the report page")
  endif()
  file(READ ${WORK}/page.js text)
  set(${script} "${text}" PARENT_SCOPE)
endfunction()

# Imports stand on one line each and rename nothing, so that leaving them out joins the files to one scope.
function(concatenate script)
  set(joined "")
  foreach(name format dom tooltip theme table charts_missing timeline_model timeline_paint timeline header
               contents experiment print main)
    file(READ ${WEB}/src/${name}.js text)
    string(REGEX REPLACE "\nimport [^\n]*" "" text "\n${text}")
    string(REGEX REPLACE "\nexport " "\n" text "${text}")
    string(APPEND joined "${text}")
  endforeach()
  set(${script} "(() => {\n'use strict';${joined}})();\n" PARENT_SCOPE)
endfunction()

set(charts FALSE)
if(NPM)
  install_packages(charts)
endif()
set(licences "")
if(charts)
  bundle(script)
  # What the bundle holds of others goes with their terms.
  foreach(package vega vega-lite d3-array)
    file(READ ${WORK}/node_modules/${package}/LICENSE text)
    string(APPEND licences "\n${package}\n\n${text}")
  endforeach()
  set(licences "<!--\nThe plots are drawn by these packages and their parts:\n${licences}-->\n")
else()
  message(STATUS "The report page is put together without plots (with Node.js 18 or newer and npm it has them)")
  concatenate(script)
endif()

file(READ ${WEB}/src/page.html page)
file(READ ${WEB}/src/page.css style)
string(REPLACE "/*baton:style*/" "${style}" page "${page}")
string(REPLACE "/*baton:script*/" "${script}" page "${page}")
file(WRITE ${PAGE}.new "${page}${licences}")
file(RENAME ${PAGE}.new ${PAGE})
