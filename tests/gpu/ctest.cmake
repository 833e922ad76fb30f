# SPDX-License-Identifier: Apache-2.0
# Programs on a GPU. Where nvcc is installed they are compiled and skip themselves without a GPU; the preset gpu runs
# them.
set(chunkmem_labels gpu)
set(chunkmem_why_not "${chunkmem_why_no_nvcc}")
if(chunkmem_nvcc)
  # nvcc compiles kernels alone. It reads a header twice, and a manager costs it three times what it costs the host's compiler.
  include("${CMAKE_CURRENT_LIST_DIR}/kernels.cmake")
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cpp")
  set(chunkmem_libraries gpu_kernels chunkmem::cuda)

  # A device that is lost, in a process of its own; and everything under the checker of memory accesses, where that is.
  chunkmem_test(gpu.fault LABELS gpu TIMEOUT 300 COMMAND test_gpu "[.fault]")
  find_program(CHUNKMEM_COMPUTE_SANITIZER compute-sanitizer HINTS "${CUDAToolkit_BIN_DIR}")
  mark_as_advanced(CHUNKMEM_COMPUTE_SANITIZER)
  if(CHUNKMEM_COMPUTE_SANITIZER)
    chunkmem_test(gpu.memcheck LABELS gpu slow TIMEOUT 7200
                  COMMAND ${CHUNKMEM_COMPUTE_SANITIZER} --error-exitcode 1 $<TARGET_FILE:test_gpu>)
  else()
    chunkmem_skipped_test(gpu.memcheck "no compute-sanitizer was found" LABELS gpu slow)
  endif()
  set_tests_properties(gpu.fault gpu.memcheck PROPERTIES FIXTURES_REQUIRED cuda_programs RESOURCE_LOCK gpu)
elseif(NOT CHUNKMEM_SANITIZE)
  chunkmem_skipped_test(gpu.fault "${chunkmem_why_no_nvcc}" LABELS gpu)
  chunkmem_skipped_test(gpu.memcheck "${chunkmem_why_no_nvcc}" LABELS gpu slow)
endif()
