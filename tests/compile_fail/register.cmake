# SPDX-License-Identifier: Apache-2.0
# Every promised compile-time message: see check.sh.
chunkmem_test(compile_fail TIMEOUT 600
              COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/check.sh" "${PROJECT_SOURCE_DIR}" "${CMAKE_CXX_COMPILER}")
if(chunkmem_why_no_checkpoint)
  set_property(TEST compile_fail APPEND PROPERTY ENVIRONMENT "WITHOUT_CHECKPOINT=${chunkmem_why_no_checkpoint}")
else()
  set_property(TEST compile_fail APPEND PROPERTY ENVIRONMENT "CHECKPOINT_FLAGS=-I${CHUNKMEM_JSON_INCLUDE} -I${CHUNKMEM_XXHASH_INCLUDE}")
endif()
chunkmem_test(compile_fail.older_standard
              COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/older_standard.sh" "${PROJECT_SOURCE_DIR}" "${CMAKE_CXX_COMPILER}")
find_program(chunkmem_second_compiler NAMES clang++-16 clang++-19 clang++-18 clang++-17)
set(flag_compilers "${CMAKE_CXX_COMPILER}")
if(chunkmem_second_compiler AND NOT chunkmem_second_compiler STREQUAL CMAKE_CXX_COMPILER)
  list(APPEND flag_compilers "${chunkmem_second_compiler}")
endif()
chunkmem_test(compile_fail.flags
              COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/flags.sh" "${PROJECT_SOURCE_DIR}" ${flag_compilers})

# Mistakes of newcomers. All of it has the label slow: the repaired forms compile whole managers.
set(newcomers sh "${CMAKE_CURRENT_LIST_DIR}/newcomers.sh" "${PROJECT_SOURCE_DIR}")
chunkmem_test(compile_fail.newcomers TIMEOUT 600 LABELS slow COMMAND ${newcomers} "${CMAKE_CXX_COMPILER}" -fsyntax-only)
if(chunkmem_second_compiler)
  chunkmem_test(compile_fail.newcomers.clang TIMEOUT 600 LABELS slow COMMAND ${newcomers} "${chunkmem_second_compiler}" -fsyntax-only)
else()
  chunkmem_skipped_test(compile_fail.newcomers.clang "no clang++ 16 to 19 was found" LABELS slow)
endif()
if(chunkmem_nvcc)
  set(host "")
  if(CMAKE_CUDA_HOST_COMPILER)
    set(host "-ccbin=${CMAKE_CUDA_HOST_COMPILER}")
  endif()
  chunkmem_test(compile_fail.newcomers.nvcc TIMEOUT 900 LABELS slow COMMAND ${newcomers} "${chunkmem_nvcc}" ${host} -x cu -c -o /dev/null)
else()
  chunkmem_skipped_test(compile_fail.newcomers.nvcc "${chunkmem_why_no_nvcc}" LABELS slow)
endif()
