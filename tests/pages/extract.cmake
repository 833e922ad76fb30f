# Makes one program of the examples in docs/policies: each block ```cpp of a page, in a namespace of that page.
#   cmake -DROOT= -DOUT=<file.cpp> -P extract.cmake
cmake_minimum_required(VERSION 3.25)
set(includes "")
set(body "")
file(GLOB pages "${ROOT}/docs/policies/*.md")
foreach(page IN LISTS pages)
  cmake_path(GET page STEM stem)
  file(READ "${page}" rest)
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
file(WRITE "${OUT}" "// Written by tests/pages/extract.cmake from docs/policies.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>
${includes}
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
