# SPDX-License-Identifier: Apache-2.0
# Builds a tiny tree that keeps the rules, breaks one rule at a time, and expects the checkers to name what was broken.
#   cmake -DROOT=<top of the tree> -DSCRATCH=<folder to use> -P check_the_checkers.cmake
cmake_minimum_required(VERSION 3.25)
set(failures "")

# write(<path> <lines...>)
function(write path)
  list(JOIN ARGN "\n" text)
  file(WRITE "${SCRATCH}/${path}" "${text}\n")
endfunction()

# header(<path below include/chunkmem> <lines...>)
function(header path)
  write(include/chunkmem/${path} "#pragma once" ${ARGN})
endfunction()

function(good_tree)
  file(REMOVE_RECURSE "${SCRATCH}")
  file(COPY "${ROOT}/cmake/floors.txt" DESTINATION "${SCRATCH}/cmake")
  write(CMakeLists.txt "")
  header(fwd.hpp "#include <cstdint>")
  header(core/a.hpp "#include <chunkmem/fwd.hpp>" "#include <vector>" "/// #include <thread>")
  header(trace/b.hpp "#include <chunkmem/core/a.hpp>")
  header(tensor/c.hpp "#include <chunkmem/core/a.hpp>")
  header(backend/d.hpp "#include <chunkmem/tensor/c.hpp>" "#include <thread>")
  header(manager/e.hpp "#include <chunkmem/tensor/c.hpp>")
  header(chunkmem.hpp "#include <chunkmem/manager/e.hpp>" "#include <chunkmem/fwd.hpp>")
endfunction()

# expect(<script> <regex...>): the script fails and says so; without a regex it passes
function(expect script)
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${SCRATCH} -P "${ROOT}/cmake/${script}"
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT ARGN AND NOT status EQUAL 0)
    list(APPEND failures "${script} refused a good tree:\n${output}")
  endif()
  foreach(regex IN LISTS ARGN)
    if(status EQUAL 0 OR NOT output MATCHES "${regex}")
      list(APPEND failures "${script} did not report \"${regex}\", but:\n${output}")
    endif()
  endforeach()
  set(failures "${failures}" PARENT_SCOPE)
endfunction()

good_tree()
expect(check_layout.cmake)
expect(check_words.cmake)

good_tree()
header(core/upward.hpp "#include <chunkmem/backend/d.hpp>")
expect(check_layout.cmake "upward include: chunkmem/core/upward.hpp .floor 0. includes chunkmem/backend/d.hpp .floor 2.")

good_tree()
header(core/reaches_umbrella.hpp "  #  include <chunkmem/chunkmem.hpp>")
expect(check_layout.cmake "upward include: chunkmem/core/reaches_umbrella.hpp")

good_tree()
header(trace/sideways.hpp "#include <chunkmem/tensor/c.hpp>")
expect(check_layout.cmake "sideways include: chunkmem/trace/sideways.hpp includes chunkmem/tensor/c.hpp, both on floor 1")

good_tree()
header(cellar/f.hpp)
expect(check_layout.cmake "unknown folder: chunkmem/cellar/f.hpp")

good_tree()
header(stray.hpp)
expect(check_layout.cmake "unknown folder: chunkmem/stray.hpp")

good_tree()
header(backend/a.hpp)
expect(check_layout.cmake "duplicate name: chunkmem/core/a.hpp and chunkmem/backend/a.hpp")

# A .cuh may need anything; for the rest a .cuh is a header like others.
good_tree()
write(include/chunkmem/backend/kernel.cuh "#pragma once" "#include <cub/cub.cuh>" "#include <chunkmem/backend/d.hpp>")
expect(check_layout.cmake)
write(include/chunkmem/backend/d.cuh "#include <chunkmem/manager/e.hpp>")
expect(check_layout.cmake "no pragma: chunkmem/backend/d.cuh" "upward include: chunkmem/backend/d.cuh")
write(include/chunkmem/manager/takes.hpp "#pragma once" "#include <chunkmem/backend/kernel.cuh>")
expect(check_layout.cmake "opt-in: chunkmem/manager/takes.hpp includes chunkmem/backend/kernel.cuh")

# What needs a component is listed.
good_tree()
header(backend/runtime.hpp "#include <cuda_runtime_api.h>")
expect(check_layout.cmake "foreign: chunkmem/backend/runtime.hpp includes <cuda_runtime_api.h>")
write(cmake/opt_in_headers.txt "# a comment" "backend/runtime.hpp cuda")
expect(check_layout.cmake)
header(backend/user.hpp "#include <chunkmem/backend/runtime.hpp>")
expect(check_layout.cmake "opt-in: chunkmem/backend/user.hpp includes chunkmem/backend/runtime.hpp")
write(cmake/opt_in_headers.txt "backend/runtime.hpp cuda" "backend/gone.hpp thrust" "backend/d.hpp opencl")
expect(check_layout.cmake "opt-in: cmake/opt_in_headers.txt names backend/gone.hpp" "says backend/d.hpp opencl")

good_tree()
header(core/quotes.hpp "#include \"a.hpp\"")
expect(check_layout.cmake "quotes: chunkmem/core/quotes.hpp")

good_tree()
header(core/absent.hpp "#include <chunkmem/core/nothing.hpp>")
expect(check_layout.cmake "no such header: chunkmem/core/absent.hpp includes chunkmem/core/nothing.hpp")

good_tree()
header(core/detail/inner.hpp)
header(tensor/foreign.hpp "#include <chunkmem/core/detail/inner.hpp>")
expect(check_layout.cmake "foreign detail: chunkmem/tensor/foreign.hpp")

good_tree()
write(include/chunkmem/core/a.hpp "#include <vector>")
expect(check_layout.cmake "no pragma: chunkmem/core/a.hpp")

good_tree()
header(fwd.hpp "#include <string>")
expect(check_layout.cmake "fwd.hpp includes string")

foreach(costly IN ITEMS thread chrono functional)
  good_tree()
  header(core/a.hpp "#include <${costly}>")
  expect(check_layout.cmake "umbrella: chunkmem.hpp reaches <${costly}> through chunkmem/core/a.hpp")
endforeach()

good_tree()
header(tensor/c.hpp "#include <Eigen/Core>")
expect(check_layout.cmake "umbrella: chunkmem.hpp reaches <Eigen/Core>")

good_tree()
header(core/quotes.hpp "#include \"a.hpp\"")
write(include/chunkmem/core/lonely.hpp "")
expect(check_layout.cmake "quotes: " "no pragma: " "layout: 2 violations")

set(parts "wo rk/" "sha red")
list(TRANSFORM parts REPLACE " " "")
list(GET parts 0 first)
list(GET parts 1 second)
good_tree()
write(notes.md "see /${first}notes and ../${second}/notes")
expect(check_words.cmake "notes.md contains /${first}" "notes.md contains ../${second}")

file(REMOVE_RECURSE "${SCRATCH}")
if(failures)
  list(JOIN failures "\n" failures)
  message(FATAL_ERROR "${failures}")
endif()
message(STATUS "the checkers notice every violation")
