# SPDX-License-Identifier: Apache-2.0
# Installs chunkmem into a fresh folder and builds a consumer against it, and one against the source tree.
#   cmake -DROOT= -DBUILD= -DVERSION= -DGENERATOR= -DCOMPILER= [-DCOMPONENTS=...] [-DNVCC=] -P check.cmake
# COMPONENTS are those that can be had here, with commas between.
cmake_minimum_required(VERSION 3.25)
set(scratch "${BUILD}/package_test")
file(REMOVE_RECURSE "${scratch}")
include("${ROOT}/cmake/known_compiler.cmake")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nreturned ${status}:\n${output}")
  endif()
endfunction()

function(configure_command out build)
  chunkmem_known_compiler("${BUILD}" "${scratch}/${build}" CXX)
  set(${out} ${CMAKE_COMMAND} -S "${ROOT}/tests/package/consumer" -B "${scratch}/${build}" -G ${GENERATOR}
      -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -DCMAKE_CXX_STANDARD=17 ${ARGN} PARENT_SCOPE)
endfunction()

# build(<name> <options...>): builds a consumer in a folder of that name and runs all its programs.
function(build name)
  configure_command(configure ${name} ${ARGN})
  run(${configure})
  run(${CMAKE_COMMAND} --build "${scratch}/${name}" --parallel 2)
  file(GLOB programs "${scratch}/${name}/consumer*")
  foreach(program IN LISTS programs)
    run("${program}")
  endforeach()
endfunction()

# refuse(<regex> <name> <options...>): configuring stops, and says so.
function(refuse regex name)
  configure_command(configure ${name} ${ARGN})
  execute_process(COMMAND ${configure} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(status EQUAL 0 OR NOT output MATCHES "${regex}")
    message(FATAL_ERROR "${name} was not refused with \"${regex}\":\n${output}")
  endif()
endfunction()

# Each consumer asks for C++17 and must be raised to 20.
run(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${scratch}/prefix")
set(installed "-DCMAKE_PREFIX_PATH=${scratch}/prefix")
build(installed ${installed} -DWANTED_VERSION=${VERSION})
build(added "-DCHUNKMEM_SOURCE=${ROOT}" "-DWANTED_COMPONENTS=${COMPONENTS}")
if(EXISTS "${scratch}/added/bin" OR EXISTS "${scratch}/added/chunkmem/generated")
  message(FATAL_ERROR "as a part of another project chunkmem built programs of its own")
endif()

# No installed file includes a file that is not installed.
set(laws "${scratch}/prefix/share/chunkmem/laws")
file(GLOB_RECURSE files "${laws}/*.hpp" "${scratch}/prefix/include/*.hpp" "${scratch}/prefix/include/*.cuh")
foreach(file IN LISTS files)
  file(STRINGS "${file}" lines REGEX "^ *#include <(chunkmem|conformance|support)/")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "<([^>]+)>" all "${line}")
    if(NOT EXISTS "${laws}/${CMAKE_MATCH_1}" AND NOT EXISTS "${scratch}/prefix/include/${CMAKE_MATCH_1}")
      message(FATAL_ERROR "${file} includes ${CMAKE_MATCH_1}, which is not installed")
    endif()
  endforeach()
endforeach()

# Components: installed ones work, from .cu files too; others are refused with the name of the missing library.
if(COMPONENTS)
  if(NVCC)
    set(kernel -DWANTED_KERNEL=ON "-DCMAKE_CUDA_COMPILER=${NVCC}")
  endif()
  build(components ${installed} "-DWANTED_COMPONENTS=${COMPONENTS}" ${kernel})
endif()
refuse("component cuda: no CUDA toolkit .*CUDAToolkit_ROOT" no_cuda ${installed} -DWANTED_COMPONENTS=cuda
       -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
refuse("component thrust: no thrust/version.h .*libthrust-dev" no_thrust ${installed} -DWANTED_COMPONENTS=thrust
       -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY -DCMAKE_FIND_ROOT_PATH=${scratch}/nowhere)
file(WRITE "${scratch}/broken/dlpack/dlpack.h" "#error broken\n")
refuse("component dlpack: a small program with it does not build: .*broken" broken_dlpack ${installed}
       -DWANTED_COMPONENTS=dlpack "-DCHUNKMEM_DLPACK_INCLUDE=${scratch}/broken")
refuse("component typo: there is no such component" typo ${installed} -DWANTED_COMPONENTS=typo)

# The next minor version and the next major one are other packages.
string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" short "${VERSION}")
math(EXPR next_minor "${CMAKE_MATCH_2} + 1")
math(EXPR next_major "${CMAKE_MATCH_1} + 1")
foreach(wrong IN ITEMS ${CMAKE_MATCH_1}.${next_minor} ${next_major}.0)
  refuse("compatible with requested version \"${wrong}\"" refused_${wrong} ${installed} -DWANTED_VERSION=${wrong})
endforeach()

file(REMOVE_RECURSE "${scratch}")
message(STATUS "package: installed, added as a folder, components: ${COMPONENTS}; wrong versions and components refused")
