# SPDX-License-Identifier: Apache-2.0
# gpu_kernels: all that nvcc has to compile for the tests of this folder and for the benches on a GPU, once for both.
if(NOT TARGET gpu_kernels)
  file(GLOB kernels CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cu")
  add_library(gpu_kernels OBJECT EXCLUDE_FROM_ALL ${kernels})
  chunkmem_flags(gpu_kernels)
  chunkmem_only_compile(gpu_kernels)
  target_include_directories(gpu_kernels PUBLIC "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(gpu_kernels PRIVATE chunkmem::cuda)
endif()
