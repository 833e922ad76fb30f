# SPDX-License-Identifier: Apache-2.0
# The flags of a device compiler must not change the arithmetic of the kernels: their PTX is compared. And what is compiled for which
# card.
set(chunkmem_joint memory)
if(chunkmem_nvcc)
  chunkmem_test(kernels.ptx LABELS cuda TIMEOUT 600
                COMMAND ${CMAKE_COMMAND} "-DNVCC=${chunkmem_nvcc}" "-DHOST=${CMAKE_CUDA_HOST_COMPILER}"
                        "-DINCLUDE=${PROJECT_SOURCE_DIR}/include" "-DSOURCE=${CMAKE_CURRENT_LIST_DIR}/compiled_kernels.cu"
                        "-DWARNINGS=${chunkmem_nvcc_warnings}" "-DWORK=${PROJECT_BINARY_DIR}/kernels" -P "${CMAKE_CURRENT_LIST_DIR}/ptx.cmake")
  set_tests_properties(kernels.ptx PROPERTIES COST 900) # long: it starts early
  # For the architectures of cuda.compile_all.
  add_library(compiled_kernels OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/compiled_kernels.cu")
  chunkmem_flags(compiled_kernels)
  target_link_libraries(compiled_kernels PRIVATE chunkmem::cuda)
  chunkmem_test(cuda.architectures LABELS cuda figures TIMEOUT 300
                COMMAND ${CMAKE_COMMAND} "-DROOT=${PROJECT_SOURCE_DIR}" "-DNVCC=${chunkmem_nvcc}" "-DHOST=${CMAKE_CUDA_HOST_COMPILER}"
                        "-DPYTHON=${CHUNKMEM_PYTHON}" "-DWORK=${PROJECT_BINARY_DIR}/architectures"
                        -P "${CMAKE_CURRENT_LIST_DIR}/architectures.cmake")
elseif(NOT CHUNKMEM_SANITIZE)
  chunkmem_skipped_test(cuda.architectures "${chunkmem_why_no_nvcc}" LABELS cuda figures)
  chunkmem_skipped_test(kernels.ptx "${chunkmem_why_no_nvcc}" LABELS cuda)
endif()
