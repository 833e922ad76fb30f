# Installs chunkmem into a fresh folder and builds a consumer against it, and one against the source tree.
#   cmake -DROOT= -DBUILD= -DVERSION= -DGENERATOR= -DCOMPILER= -P check.cmake
cmake_minimum_required(VERSION 3.25)
set(scratch "${BUILD}/package_test")
file(REMOVE_RECURSE "${scratch}")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nreturned ${status}:\n${output}")
  endif()
endfunction()

function(configure_command out build)
  set(${out} ${CMAKE_COMMAND} -S "${ROOT}/tests/package/consumer" -B "${scratch}/${build}" -G ${GENERATOR}
      -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -DCMAKE_CXX_STANDARD=17 ${ARGN} PARENT_SCOPE)
endfunction()

# Each consumer asks for C++17 and must be raised to 20.
run(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${scratch}/prefix")
configure_command(installed installed "-DCMAKE_PREFIX_PATH=${scratch}/prefix" -DWANTED_VERSION=${VERSION})
run(${installed})
run(${CMAKE_COMMAND} --build "${scratch}/installed")
run("${scratch}/installed/consumer")

configure_command(added added "-DCHUNKMEM_SOURCE=${ROOT}")
run(${added})
run(${CMAKE_COMMAND} --build "${scratch}/added")
run("${scratch}/added/consumer")
if(EXISTS "${scratch}/added/bin" OR EXISTS "${scratch}/added/chunkmem/generated")
  message(FATAL_ERROR "as a part of another project chunkmem built programs of its own")
endif()

# The next minor version and the next major one are other packages.
string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" short "${VERSION}")
math(EXPR next_minor "${CMAKE_MATCH_2} + 1")
math(EXPR next_major "${CMAKE_MATCH_1} + 1")
foreach(wrong IN ITEMS ${CMAKE_MATCH_1}.${next_minor} ${next_major}.0)
  configure_command(refused refused_${wrong} "-DCMAKE_PREFIX_PATH=${scratch}/prefix" -DWANTED_VERSION=${wrong})
  execute_process(COMMAND ${refused} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(status EQUAL 0 OR NOT output MATCHES "compatible with[ \n]+requested[ \n]+version[ \n]+\"${wrong}\"")
    message(FATAL_ERROR "version ${wrong} was not refused by version ${VERSION}:\n${output}")
  endif()
endforeach()

file(REMOVE_RECURSE "${scratch}")
message(STATUS "package: installed, added as a folder, wrong versions refused")
