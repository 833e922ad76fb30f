# Figure core.include_preprocessed_lines: what including the umbrella header costs every translation unit of a user.
#   cmake -DROOT=<top of the tree> -DCOMPILER=<compiler> -P preprocessed_lines.cmake
cmake_minimum_required(VERSION 3.25)
set(bound 80000)
set(umbrella "${ROOT}/include/chunkmem/chunkmem.hpp")
if(NOT EXISTS "${umbrella}")
  message(STATUS "SKIPPED: there is no ${umbrella}")
  return()
endif()

execute_process(COMMAND ${COMPILER} -std=c++20 -E "-I${ROOT}/include" "${umbrella}"
                COMMAND wc -l OUTPUT_VARIABLE lines RESULTS_VARIABLE statuses OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT statuses STREQUAL "0;0")
  message(FATAL_ERROR "${COMPILER} cannot preprocess ${umbrella}")
endif()

if(DEFINED ENV{CHUNKMEM_FIGURES})
  file(WRITE "$ENV{CHUNKMEM_FIGURES}/include_preprocessed_lines.json"
"[{\"name\": \"core.include_preprocessed_lines\", \"value\": ${lines}, \"unit\": \"lines\", \"relation\": \"<=\",
  \"bound\": ${bound}, \"command\": \"g++ -std=c++20 -E -Iinclude include/chunkmem/chunkmem.hpp | wc -l\"}]
")
endif()
if(lines GREATER bound)
  message(FATAL_ERROR "chunkmem.hpp preprocesses to ${lines} lines, at most ${bound} are allowed")
endif()
message(STATUS "chunkmem.hpp preprocesses to ${lines} lines, at most ${bound} are allowed")
