# SPDX-License-Identifier: Apache-2.0
# For a GPU. Where nvcc is installed they are compiled for the tests too, and report a skip without a GPU.
set(chunkmem_labels gpu)
set(chunkmem_why_not "${chunkmem_why_no_nvcc}")
if(chunkmem_nvcc)
  add_library(cuda_bench_parts OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/count_news.cpp")
  chunkmem_flags(cuda_bench_parts)
  set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/tests")
  include("${PROJECT_SOURCE_DIR}/tests/gpu/kernels.cmake")
  set(chunkmem_libraries chunkmem::cuda cuda_bench_parts gpu_kernels)
endif()
