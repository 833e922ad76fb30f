# SPDX-License-Identifier: Apache-2.0
# Everything a user may switch. As a part of another project all of it is off.
option(CHUNKMEM_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(CHUNKMEM_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(CHUNKMEM_BUILD_BENCH "Build all benchmarks; without it only those that tests run" ${PROJECT_IS_TOP_LEVEL})
option(CHUNKMEM_INSTALL "Add install rules and the exported package" ${PROJECT_IS_TOP_LEVEL})
option(CHUNKMEM_WERROR "Treat warnings in our own programs as errors" OFF)
set(CHUNKMEM_WITH_CUDA AUTO CACHE STRING "The CUDA backend: AUTO where a toolkit is found, ON, OFF")
set_property(CACHE CHUNKMEM_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(CHUNKMEM_SANITIZE "" CACHE STRING "Sanitizers of our own programs: address;undefined or thread")

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  set(CMAKE_CXX_EXTENSIONS OFF)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
  endif()
endif()
