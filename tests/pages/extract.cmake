# SPDX-License-Identifier: Apache-2.0
# Makes one program of the examples in docs/policies, docs/integrating.md and docs/interop.md: each block ```cpp of a page, in a namespace of that
# page. What stands under the heading "## LibTorch" is a program of its own, made with -DLIBTORCH=ON.
#   cmake -DROOT= -DOUT=<file.cpp> [-DLIBTORCH=ON] -P extract.cmake
cmake_minimum_required(VERSION 3.25)
cmake_path(ABSOLUTE_PATH ROOT)

# keep_section(<text> <in>): what is inside or outside of the section on LibTorch; the other lines are empty, so that numbers stay.
function(keep_section text_out in_section)
  set(text "${${text_out}}")
  string(FIND "${text}" "\n## LibTorch\n" begin)
  set(kept "")
  set(section "")
  set(behind "")
  if(begin EQUAL -1)
    set(kept "${text}")
  else()
    string(SUBSTRING "${text}" 0 ${begin} kept)
    string(SUBSTRING "${text}" ${begin} -1 section)
    string(SUBSTRING "${section}" 1 -1 rest)
    string(FIND "${rest}" "\n## " end)
    if(NOT end EQUAL -1)
      string(SUBSTRING "${rest}" ${end} -1 behind)
      string(SUBSTRING "${section}" 0 ${end} section)
      string(APPEND section "\n")
    endif()
  endif()
  foreach(part IN ITEMS kept section behind)
    if((part STREQUAL "section" AND NOT in_section) OR (NOT part STREQUAL "section" AND in_section))
      string(REGEX REPLACE "[^\n]" "" ${part} "${${part}}")
    endif()
  endforeach()
  set(${text_out} "${kept}${section}${behind}" PARENT_SCOPE)
endfunction()

set(includes "")
set(body "")
file(GLOB pages "${ROOT}/docs/policies/*.md")
if(LIBTORCH)
  set(pages "")
endif()
foreach(page IN LISTS pages ITEMS "${ROOT}/docs/integrating.md" "${ROOT}/docs/interop.md")
  cmake_path(GET page STEM stem)
  file(READ "${page}" rest)
  keep_section(rest "${LIBTORCH}")
  set(line 1)
  set(blocks "")
  while(TRUE)
    string(FIND "${rest}" "```cpp\n" begin)
    if(begin EQUAL -1)
      break()
    endif()
    math(EXPR begin "${begin} + 7")
    string(SUBSTRING "${rest}" 0 ${begin} before)
    string(SUBSTRING "${rest}" ${begin} -1 rest)
    string(REGEX MATCHALL "\n" ends "${before}")
    list(LENGTH ends count)
    math(EXPR line "${line} + ${count}")
    string(FIND "${rest}" "```" end)
    string(SUBSTRING "${rest}" 0 ${end} block)
    string(SUBSTRING "${rest}" ${end} -1 rest)
    string(REGEX MATCHALL "#include <[^>]+>\n" found "${block}")
    string(APPEND includes ${found})
    string(REGEX REPLACE "#include <[^>]+>\n" "\n" own "${block}")
    string(APPEND blocks "#line ${line} \"${page}\"\n${own}")
    string(REGEX MATCHALL "\n" ends "${block}")
    list(LENGTH ends count)
    math(EXPR line "${line} + ${count}")
  endwhile()
  if(blocks)
    string(APPEND body "namespace page_${stem} {\n${blocks}}  // namespace page_${stem}\n")
  elseif(NOT stem STREQUAL "index")
    message(FATAL_ERROR "pages: ${page} has no example")
  endif()
endforeach()
file(WRITE "${OUT}" "// Written by tests/pages/extract.cmake from docs.
${includes}
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <vector>

namespace cm = chunkmem;
${body}")
