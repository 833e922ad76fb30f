# SPDX-License-Identifier: Apache-2.0
# Figure optimizer.bit_equal_builds_percent: of all builds and instruction sets, how many print the fingerprints of the first.
#   cmake -DPROGRAMS=<program;program...> -P compare_builds.cmake
cmake_minimum_required(VERSION 3.25)
set(expected "")
set(runs 0)
set(equal 0)
foreach(program IN LISTS PROGRAMS)
  execute_process(COMMAND "${program}" OUTPUT_VARIABLE printed RESULT_VARIABLE status)
  if(NOT status EQUAL 0 OR printed STREQUAL "")
    message(FATAL_ERROR "${program} failed: ${status}")
  endif()
  foreach(set IN ITEMS baseline avx2 avx512 avx512_bf16)
    string(REGEX MATCHALL "${set} [^\n]*\n" lines "${printed}")
    if(lines STREQUAL "")
      continue() # not on this processor
    endif()
    string(REPLACE "${set} " "" lines "${lines}")
    if(expected STREQUAL "")
      set(expected "${lines}")
      list(LENGTH lines cases)
    endif()
    math(EXPR runs "${runs} + 1")
    if(lines STREQUAL expected)
      math(EXPR equal "${equal} + 1")
    else()
      message(SEND_ERROR "${program} prints other bits for ${set}")
    endif()
  endforeach()
endforeach()
if(runs EQUAL 0)
  message(FATAL_ERROR "no build to compare")
endif()

math(EXPR percent "${equal} * 100 / ${runs}")
if(DEFINED ENV{CHUNKMEM_FIGURES})
  file(WRITE "$ENV{CHUNKMEM_FIGURES}/equality_builds.json"
"[{\"name\": \"optimizer.bit_equal_builds_percent\", \"value\": ${percent}, \"unit\": \"percent\", \"relation\": \"==\",
  \"bound\": 100, \"command\": \"ctest --preset test -R equality.builds\"}]
")
endif()
list(LENGTH PROGRAMS builds)
message(STATUS "${builds} builds, ${runs} runs of ${cases} cases with one instruction set each: ${equal} print the same bits")
