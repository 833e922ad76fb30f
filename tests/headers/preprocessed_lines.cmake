# SPDX-License-Identifier: Apache-2.0
# Figures core.include_preprocessed_lines and core.fwd_preprocessed_lines: the cost of the umbrella header, and of the
# header of declarations, in every translation unit of a user.
#   cmake -DROOT=<top of the tree> -DCOMPILER=<compiler> -P preprocessed_lines.cmake
cmake_minimum_required(VERSION 3.25)

# count(<out> <header> <bound>): its preprocessed lines; stops where they are more.
function(count out header bound)
  execute_process(COMMAND ${COMPILER} -std=c++20 -E "-I${ROOT}/include" "${ROOT}/include/chunkmem/${header}"
                  COMMAND wc -l OUTPUT_VARIABLE lines ERROR_QUIET RESULTS_VARIABLE statuses OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT statuses STREQUAL "0;0")
    message(FATAL_ERROR "${COMPILER} cannot preprocess chunkmem/${header}")
  elseif(lines GREATER bound)
    message(SEND_ERROR "${header} preprocesses to ${lines} lines, at most ${bound} are allowed")
  endif()
  message(STATUS "${header} preprocesses to ${lines} lines, at most ${bound} are allowed")
  set(${out} "${lines}" PARENT_SCOPE)
endfunction()
count(umbrella chunkmem.hpp 75000)
count(declarations fwd.hpp 2000)

if(DEFINED ENV{CHUNKMEM_FIGURES})
  set(command "g++ -std=c++20 -E -Iinclude include/chunkmem")
  file(WRITE "$ENV{CHUNKMEM_FIGURES}/include_preprocessed_lines.json"
"[{\"name\": \"core.include_preprocessed_lines\", \"value\": ${umbrella}, \"unit\": \"lines\", \"relation\": \"<=\",
  \"bound\": 75000, \"command\": \"${command}/chunkmem.hpp | wc -l\"},
 {\"name\": \"core.fwd_preprocessed_lines\", \"value\": ${declarations}, \"unit\": \"lines\", \"relation\": \"<=\",
  \"bound\": 2000, \"command\": \"${command}/fwd.hpp | wc -l\"}]
")
endif()
