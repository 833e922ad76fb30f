# SPDX-License-Identifier: Apache-2.0
# Times, so not among the tests. The model and its kernels are those of the example, the arena is that of the tests.
set(chunkmem_only_bench ON)
include("${PROJECT_SOURCE_DIR}/cmake/packages.cmake")
chunkmem_find_package(chunkmem_why_not Eigen3 Eigen3::Eigen libeigen3-dev PROGRAM [[
#include <Eigen/Core>
int main() { return Eigen::Vector2f::Ones()[1] == 1.0F ? 0 : 1; }
]])
if(NOT chunkmem_why_not)
  set(model_sources kernels precision text)
  list(TRANSFORM model_sources REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/examples/gpt/\\1.cpp")
  add_library(overlap_model OBJECT EXCLUDE_FROM_ALL ${model_sources})
  chunkmem_flags(overlap_model)
  target_compile_options(overlap_model PRIVATE -O2 "-DCHUNKMEM_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
  target_include_directories(overlap_model PUBLIC "${PROJECT_SOURCE_DIR}/examples/gpt")
  target_link_libraries(overlap_model PUBLIC Eigen3::Eigen)
  set(chunkmem_libraries overlap_model)
  set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/tests")
endif()
