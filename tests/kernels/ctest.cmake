# SPDX-License-Identifier: Apache-2.0
# The flags of a device compiler must not change the arithmetic of the kernels: their PTX is compared.
set(chunkmem_joint memory)
if(chunkmem_nvcc)
  chunkmem_test(kernels.ptx LABELS cuda TIMEOUT 600
                COMMAND ${CMAKE_COMMAND} "-DNVCC=${chunkmem_nvcc}" "-DHOST=${CMAKE_CUDA_HOST_COMPILER}"
                        "-DINCLUDE=${PROJECT_SOURCE_DIR}/include" "-DSOURCE=${CMAKE_CURRENT_LIST_DIR}/compiled_kernels.cu"
                        "-DWORK=${PROJECT_BINARY_DIR}/kernels" -P "${CMAKE_CURRENT_LIST_DIR}/ptx.cmake")
elseif(NOT CHUNKMEM_SANITIZE)
  chunkmem_skipped_test(kernels.ptx "${chunkmem_why_no_nvcc}" LABELS cuda)
endif()
