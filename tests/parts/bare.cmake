# SPDX-License-Identifier: Apache-2.0
# For the scripts in this folder: a machine that has a compiler, and nothing else that CMake could find.
#   BUILD is the build that runs the test. Its cache says where ninja, Eigen, CLI11, Catch2 and Python are.
include("${ROOT}/cmake/known_compiler.cmake")

# CMake finds only what a test names.
set(cuda /usr/local/cuda) # the hints of find_path are searched all the same
set(bare -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF -DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF
    -DCMAKE_FIND_USE_CMAKE_ENVIRONMENT_PATH=OFF -DCMAKE_FIND_USE_PACKAGE_ROOT_PATH=OFF
    -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -DCMAKE_FIND_USE_SYSTEM_PACKAGE_REGISTRY=OFF
    "-DCMAKE_IGNORE_PATH=${cuda}/bin\\;${cuda}/include\\;${cuda}/include/cccl\\;${cuda}/cccl")
foreach(name IN ITEMS CUDA_PATH CUDA_HOME CUDACXX CUDAHOSTCXX MPI_HOME I_MPI_ROOT TBBROOT)
  unset(ENV{${name}})
endforeach()
foreach(name IN ITEMS CMAKE_MAKE_PROGRAM CMAKE_CXX_COMPILER_LAUNCHER Catch2_DIR CHUNKMEM_CATCH2_INCLUDE CHUNKMEM_PYTHON
        Eigen3_DIR CLI11_DIR)
  file(STRINGS "${BUILD}/CMakeCache.txt" line REGEX "^${name}:")
  string(REGEX REPLACE "^[^=]*=(.*NOTFOUND$)?" "" outer_${name} "${line}")
endforeach()
foreach(name IN ITEMS CMAKE_MAKE_PROGRAM CMAKE_CXX_COMPILER_LAUNCHER Catch2_DIR CHUNKMEM_CATCH2_INCLUDE CHUNKMEM_PYTHON)
  if(outer_${name})
    list(APPEND bare "-D${name}=${outer_${name}}")
  endif()
endforeach()

# configure(<name> <options...>): a build folder <scratch>/<name>; the messages of CMake are in `output`.
function(configure name)
  chunkmem_known_compiler("${BUILD}" "${scratch}/${name}" CXX)
  execute_process(COMMAND ${CMAKE_COMMAND} -S "${ROOT}" -B "${scratch}/${name}" -G ${GENERATOR}
                          -DCMAKE_CXX_COMPILER=${COMPILER} ${bare} ${ARGN}
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(mistakes "")
  if(NOT status EQUAL 0)
    list(APPEND mistakes "configuring returned ${status}")
  endif()
  set(output "${output}" PARENT_SCOPE)
  set(mistakes "${mistakes}" PARENT_SCOPE)
endfunction()

# expect_off(<what> <regex>): the summary has that line, with a reason that matches.
function(expect_off what reason)
  if(NOT output MATCHES "--   ${what} +off +[^\n]*${reason}")
    list(APPEND mistakes "${what} is not off because of \"${reason}\"")
    set(mistakes "${mistakes}" PARENT_SCOPE)
  endif()
endfunction()

# fail_on_mistakes(<name>): shows them all, with the messages of CMake.
function(fail_on_mistakes name)
  if(mistakes)
    message(STATUS "${output}")
    list(JOIN mistakes "\n  " text)
    message(FATAL_ERROR "${name}:\n  ${text}")
  endif()
endfunction()
