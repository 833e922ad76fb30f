# SPDX-License-Identifier: Apache-2.0
# Configures the demo and the tests where every optional part is hidden, as on a machine that lacks them all, and looks
# whether anything that would be built includes one. With WITH_BUILD it builds the demo's program too.
#   cmake -DROOT= -DBUILD= -DGENERATOR= -DCOMPILER= [-DWITH_BUILD=ON] -P hidden.cmake
cmake_minimum_required(VERSION 3.25)
set(scratch "${BUILD}/hidden_parts${WITH_BUILD}")
file(REMOVE_RECURSE "${scratch}")
include("${CMAKE_CURRENT_LIST_DIR}/bare.cmake")
if(NOT outer_Eigen3_DIR OR NOT outer_CLI11_DIR)
  message(STATUS "SKIPPED: the demo itself needs Eigen and CLI11")
  return()
endif()

# The compiler finds headers of the system without CMake. These are found earlier, and none can be included.
set(hidden cuda.h cuda_runtime_api.h dlpack/dlpack.h glpk.h mpi.h nccl.h nlohmann/json.hpp tbb/tbb.h thrust/version.h
    torch/types.h xxhash.h)
foreach(header IN LISTS hidden)
  file(WRITE "${scratch}/none/${header}" "#error \"${header} is hidden\"\n")
endforeach()

# Without optimisation, since nothing is trained.
configure(demo -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS=-isystem ${scratch}/none" -DCMAKE_CXX_FLAGS_DEBUG=-O0
          -DCHUNKMEM_BUILD_TESTS=ON -DCHUNKMEM_BUILD_BENCH=OFF -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
          "-DEigen3_DIR=${outer_Eigen3_DIR}" "-DCLI11_DIR=${outer_CLI11_DIR}")
foreach(part IN ITEMS checkpoint cuda dlpack json mpi nccl thrust "examples: libtorch" "examples: max_model"
        "examples: gpt_cuda")
  expect_off("${part}" "[a-z]")
endforeach()
if(NOT output MATCHES "--   examples: gpt +on ")
  list(APPEND mistakes "the demo is not on")
endif()
if(GENERATOR STREQUAL Ninja)
  execute_process(COMMAND "${outer_CHUNKMEM_PYTHON}" -B "${CMAKE_CURRENT_LIST_DIR}/needs.py" "${ROOT}" "${scratch}/demo" ${hidden}
                  RESULT_VARIABLE status OUTPUT_VARIABLE needs ERROR_VARIABLE needs)
  if(NOT status EQUAL 0)
    list(APPEND mistakes "${needs}")
  endif()
endif()
fail_on_mistakes(hidden)

if(NOT WITH_BUILD)
  file(REMOVE_RECURSE "${scratch}")
  message(STATUS "parts: the demo is on with every optional part hidden")
  return()
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build "${scratch}/demo" --target gpt --parallel 2
                RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "hidden: building the demo returned ${status}:\n${output}")
endif()
execute_process(COMMAND "${scratch}/demo/bin/gpt" --help
                RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "hidden: the demo does not start, status ${status}:\n${output}")
endif()
file(REMOVE_RECURSE "${scratch}")
message(STATUS "parts: the demo was built with every optional part hidden")
