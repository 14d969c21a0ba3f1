# Puts the report page together from web/src: cmake -DWEB=... -DWORK=... -DPAGE=... -DESBUILD=... [-DNPM=...] -P assemble.cmake
#
# esbuild bundles the sources. With NPM, the packages of package-lock.json are installed into WORK (once for each lock file) and the
# page has plots. Without NPM, or when the packages cannot be had, charts_missing.js stands in the place of charts.js.
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

# `charts` is charts.js or what stands in its place; `vega` is narrowed to what plots need. Outside WEB a package is found by NODE_PATH.
function(bundle charts script)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env NODE_PATH=${WORK}/node_modules
                          ${ESBUILD} ${WEB}/src/main.js --bundle --minify --format=iife --target=es2020 --legal-comments=none
                          --log-level=warning --alias:charts=${WEB}/src/${charts} --alias:vega=${WEB}/src/vega.js
                          --outfile=${PAGE}.js
                  RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "esbuild could not bundle the report page")
  endif()
  file(READ ${PAGE}.js text)
  set(${script} "${text}" PARENT_SCOPE)
endfunction()

set(charts FALSE)
if(NPM)
  install_packages(charts)
endif()
set(licences "")
if(charts)
  bundle(charts.js script)
  # The licences of code by others in the bundle are included.
  foreach(package vega vega-lite d3-array)
    file(READ ${WORK}/node_modules/${package}/LICENSE text)
    string(APPEND licences "\n${package}\n\n${text}")
  endforeach()
  set(licences "<!--\nThe plots are drawn by these packages and their parts:\n${licences}-->\n")
else()
  message(STATUS "The report page is put together without plots (with Node.js 18 or newer and npm it has them)")
  bundle(charts_missing.js script)
endif()

file(READ ${WEB}/src/page.html page)
file(READ ${WEB}/src/page.css style)
string(REPLACE "/*baton:style*/" "${style}" page "${page}")
string(REPLACE "/*baton:script*/" "${script}" page "${page}")
file(WRITE ${PAGE}.new "${page}${licences}")
file(RENAME ${PAGE}.new ${PAGE})
