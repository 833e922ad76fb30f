# SPDX-License-Identifier: Apache-2.0
# Programs on a GPU. Where nvcc is they are compiled and skip themselves without a GPU; the preset gpu runs them.
set(chunkmem_labels gpu)
set(chunkmem_why_not "${chunkmem_why_no_nvcc}")
if(chunkmem_nvcc)
  # Kernels, and what they are compared with. Tests are compiled by the host's compiler: Catch2 costs nvcc more.
  file(GLOB parts CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cu" "${CMAKE_CURRENT_LIST_DIR}/*.cpp")
  list(FILTER parts EXCLUDE REGEX "_test[.]cpp$")
  add_library(gpu_parts OBJECT EXCLUDE_FROM_ALL ${parts})
  chunkmem_flags(gpu_parts)
  target_include_directories(gpu_parts PUBLIC "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(gpu_parts PRIVATE chunkmem::cuda)
  set(chunkmem_libraries gpu_parts chunkmem::cuda)

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
