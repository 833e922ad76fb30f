# SPDX-License-Identifier: Apache-2.0
# One consumer: gets chunkmem as its folder says, builds program.cpp, and runs it.
#   cmake -DNAME=<folder> -DROOT= -DBUILD= -DVERSION= -DGENERATOR= -DCOMPILER= [-DNVCC= -DPYTHON= -DCPM_FILE= ...] -P run.cmake
# A check.cmake that lacks a tool calls `skip` with a reason. A consumer that passed leaves
# <BUILD>/consumers/<NAME>.passed.
cmake_minimum_required(VERSION 3.25)
set(consumers "${BUILD}/consumers")
include("${ROOT}/cmake/known_compiler.cmake")
set(scratch "${consumers}/${NAME}")
file(REMOVE_RECURSE "${scratch}" "${scratch}.passed")
file(MAKE_DIRECTORY "${scratch}")

# run(<command...>): stops where it fails; its output is in `output`.
function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${scratch}" RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${NAME}: ${command}\nreturned ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# build_by_cmake(<options...>): the folder's CMakeLists.txt, as a user would who asked for C++17.
function(build_by_cmake)
  chunkmem_known_compiler("${BUILD}" "${scratch}/build" CXX)
  run(${CMAKE_COMMAND} -S "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${NAME}" -B "${scratch}/build" -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
      -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -DCMAKE_CXX_STANDARD=17 ${ARGN})
  run(${CMAKE_COMMAND} --build "${scratch}/build")
  run("${scratch}/build/consumer")
endfunction()

# install_to(<folder>): as `cmake --install` does.
function(install_to prefix)
  run(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${prefix}")
endfunction()

# Leaves a check.cmake.
macro(skip why)
  set(skipped "${why}")
  return()
endmacro()

include("${CMAKE_CURRENT_LIST_DIR}/${NAME}/check.cmake")
file(REMOVE_RECURSE "${scratch}")
if(skipped)
  message(STATUS "SKIPPED: ${skipped}")
else()
  file(TOUCH "${scratch}.passed")
  message(STATUS "consumers: ${NAME}: swapped an eviction policy")
endif()
