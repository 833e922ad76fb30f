# SPDX-License-Identifier: Apache-2.0
# Builds a project with policies of its own, tests/package/third_party, with an installed chunkmem and far from its
# tree, and runs its tests. It needs no support from chunkmem, and reads nothing of its tree.
#   cmake -DROOT= -DBUILD= -DGENERATOR= -DCOMPILER= [-DCATCH2_INCLUDE=] -P third_party.cmake
cmake_minimum_required(VERSION 3.25)
set(scratch "${BUILD}/strangers_test")
file(REMOVE_RECURSE "${scratch}")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nreturned ${status}:\n${output}")
  endif()
endfunction()

# Each file below a folder with a hash of what it holds.
function(contents_of out folder)
  set(contents "")
  file(GLOB_RECURSE files RELATIVE "${folder}" "${folder}/*")
  foreach(file IN LISTS files)
    file(SHA256 "${folder}/${file}" hash)
    list(APPEND contents "${file} ${hash}")
  endforeach()
  set(${out} "${contents}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${scratch}/prefix")
file(COPY "${ROOT}/tests/package/third_party" DESTINATION "${scratch}")
contents_of(before "${scratch}/prefix")

run(${CMAKE_COMMAND} -S "${scratch}/third_party" -B "${scratch}/build" -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_PREFIX_PATH=${scratch}/prefix -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
    -DCHUNKMEM_CATCH2_INCLUDE=${CATCH2_INCLUDE})
run(${CMAKE_COMMAND} --build "${scratch}/build" --parallel 2)
run("${scratch}/build/third_party")

contents_of(after "${scratch}/prefix")
if(NOT before STREQUAL after)
  message(FATAL_ERROR "a file of the installed chunkmem was touched")
endif()
contents_of(headers "${ROOT}/include")
contents_of(installed "${scratch}/prefix/include")
if(NOT headers STREQUAL installed)
  message(FATAL_ERROR "the installed headers are not those of the tree")
endif()
file(READ "${scratch}/build/compile_commands.json" commands)
foreach(folder IN ITEMS include tests)
  string(FIND "${commands}" "${ROOT}/${folder}" at)
  if(NOT at EQUAL -1)
    message(FATAL_ERROR "the strangers were built with ${ROOT}/${folder}:\n${commands}")
  endif()
endforeach()

file(REMOVE_RECURSE "${scratch}")
message(STATUS "strangers: an eviction, a layout, a state table and a backend beside an installed chunkmem")
