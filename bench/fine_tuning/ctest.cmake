# SPDX-License-Identifier: Apache-2.0
# Trainings, so not among the tests. The model and its kernels are those of the example.
set(chunkmem_only_bench ON)
include("${PROJECT_SOURCE_DIR}/cmake/packages.cmake")
chunkmem_find_package(chunkmem_why_not Eigen3 Eigen3::Eigen libeigen3-dev PROGRAM [[
#include <Eigen/Core>
int main() { return Eigen::Vector2f::Ones()[1] == 1.0F ? 0 : 1; }
]])
if(NOT TARGET chunkmem::checkpoint)
  list(APPEND chunkmem_why_not "no nlohmann/json.hpp or xxhash.h (Debian: apt-get install nlohmann-json3-dev libxxhash-dev)")
endif()
if(NOT chunkmem_why_not)
  set(model_sources kernels precision text)
  list(TRANSFORM model_sources REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/examples/gpt/\\1.cpp")
  add_library(fine_tuning_model OBJECT EXCLUDE_FROM_ALL ${model_sources})
  chunkmem_flags(fine_tuning_model)
  target_compile_options(fine_tuning_model PRIVATE -O2 "-DCHUNKMEM_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
  target_include_directories(fine_tuning_model PUBLIC "${PROJECT_SOURCE_DIR}/examples/gpt")
  target_link_libraries(fine_tuning_model PUBLIC Eigen3::Eigen chunkmem::checkpoint)
  set(chunkmem_libraries fine_tuning_model)
  set(chunkmem_compile_options "-DCHUNKMEM_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
endif()
