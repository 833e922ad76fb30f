# SPDX-License-Identifier: Apache-2.0
# Figure consumers.passed: the number of ways to get chunkmem that passed since they were last tried.
#   cmake -DWAYS=<list> -DBUILD= -P count.cmake
cmake_minimum_required(VERSION 3.25)
set(bound 9)
set(passed 0)
set(missing "")
foreach(way IN LISTS WAYS)
  if(EXISTS "${BUILD}/consumers/${way}.passed")
    math(EXPR passed "${passed} + 1")
  else()
    list(APPEND missing ${way})
  endif()
endforeach()
if(DEFINED ENV{CHUNKMEM_FIGURES})
  file(WRITE "$ENV{CHUNKMEM_FIGURES}/consumers.json"
"[{\"name\": \"consumers.passed\", \"value\": ${passed}, \"unit\": \"ways to get chunkmem\", \"relation\": \">=\",
  \"bound\": ${bound}, \"command\": \"ctest -R '^consumers'\"}]
")
endif()
if(missing)
  message(STATUS "SKIPPED: ${passed} of ${bound} passed; not tried, or failed: ${missing}")
else()
  message(STATUS "consumers: ${passed} passed, at least ${bound} are wanted")
endif()
