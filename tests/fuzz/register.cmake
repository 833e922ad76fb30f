# SPDX-License-Identifier: Apache-2.0
# Each <name>_fuzz.cpp looks for a minute for bytes that a loader does not survive, with a clang that has libFuzzer.
find_program(chunkmem_fuzz_compiler NAMES clang++-16 clang++-19 clang++-18 clang++-17)
mark_as_advanced(chunkmem_fuzz_compiler)
file(GLOB fuzzers CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*_fuzz.cpp")
foreach(fuzzer IN LISTS fuzzers)
  cmake_path(GET fuzzer STEM name)
  string(REGEX REPLACE "_fuzz$" "" name "${name}")
  if(NOT chunkmem_fuzz_compiler)
    chunkmem_skipped_test(fuzz.${name} "no clang++ 16 to 19 was found" LABELS slow)
  elseif(chunkmem_why_no_checkpoint)
    chunkmem_skipped_test(fuzz.${name} "${chunkmem_why_no_checkpoint}" LABELS slow)
  else()
    chunkmem_test(fuzz.${name} LABELS slow TIMEOUT 600
                  COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/run.sh" "${chunkmem_fuzz_compiler}" "${PROJECT_SOURCE_DIR}"
                          "${PROJECT_BINARY_DIR}/fuzz" 60 ${name} "${CHUNKMEM_JSON_INCLUDE}" "${CHUNKMEM_XXHASH_INCLUDE}")
  endif()
endforeach()
