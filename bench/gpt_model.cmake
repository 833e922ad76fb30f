# SPDX-License-Identifier: Apache-2.0
# chunkmem_gpt_model(<target>): the model and the kernels of the example gpt, compiled for the programs of a folder.
# Without Eigen it sets chunkmem_why_not.
include("${PROJECT_SOURCE_DIR}/cmake/packages.cmake")

macro(chunkmem_gpt_model target)
  chunkmem_find_package(chunkmem_why_not Eigen3 Eigen3::Eigen libeigen3-dev PROGRAM [[
#include <Eigen/Core>
int main() { return Eigen::Vector2f::Ones()[1] == 1.0F ? 0 : 1; }
]])
  if(NOT chunkmem_why_not)
    set(model_sources kernels precision text)
    list(TRANSFORM model_sources REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/examples/gpt/\\1.cpp")
    add_library(${target} OBJECT EXCLUDE_FROM_ALL ${model_sources})
    chunkmem_flags(${target})
    target_compile_options(${target} PRIVATE -O2 "-DCHUNKMEM_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
    target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}/examples/gpt")
    target_link_libraries(${target} PUBLIC Eigen3::Eigen)
    set(chunkmem_libraries ${target})
  endif()
endmacro()
