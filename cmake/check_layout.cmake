# SPDX-License-Identifier: Apache-2.0
# Checks the shape of the tree against cmake/floors.txt and the rules of CONTRIBUTING.md; lists every violation.
#   cmake [-DROOT=<top of the tree>] -P cmake/check_layout.cmake
cmake_minimum_required(VERSION 3.25)
if(NOT ROOT)
  cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH ROOT)
endif()
set(include "${ROOT}/include")
set(violations "")

function(violation)
  string(JOIN "" text ${ARGN})
  list(APPEND violations "${text}")
  set(violations "${violations}" PARENT_SCOPE)
endfunction()

# The floors: floor_<folder>. A header at the top, fwd.hpp or chunkmem.hpp, is a folder of its own here.
file(STRINGS "${ROOT}/cmake/floors.txt" lines REGEX "^[0-9]")
foreach(line IN LISTS lines)
  string(REPLACE " " ";" words "${line}")
  list(POP_FRONT words floor)
  foreach(folder IN LISTS words)
    set(floor_${folder} ${floor})
  endforeach()
endforeach()
set(floor_fwd.hpp -1)
set(floor_chunkmem.hpp 10)

set(std_headers
    algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits
    clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint
    cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception execution filesystem format forward_list fstream
    functional future initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory
    memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator
    semaphore set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string string_view
    syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray
    variant vector version)

# What a few lines for each system need, inside conditions; elsewhere they are not seen.
set(system_headers fcntl.h sys/file.h sys/mman.h sys/stat.h unistd.h)

# Headers that need a component: opt_in_<header> says which. A .cuh needs nvcc.
if(EXISTS "${ROOT}/cmake/opt_in_headers.txt")
  file(STRINGS "${ROOT}/cmake/opt_in_headers.txt" lines REGEX "^[^#]")
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "^([^ ]+[.]hpp) (cuda|thrust|nccl|checkpoint|json|mpi|dlpack)$")
      violation("opt-in: cmake/opt_in_headers.txt says ${line}, write <folder>/<header>.hpp and cuda, thrust, nccl, checkpoint, json, mpi or dlpack")
    elseif(NOT EXISTS "${include}/chunkmem/${CMAKE_MATCH_1}")
      violation("opt-in: cmake/opt_in_headers.txt names ${CMAKE_MATCH_1}, which is not there")
    else()
      set(opt_in_chunkmem/${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
    endif()
  endforeach()
endif()

function(folder_of out header) # chunkmem/core/bytes.hpp -> core, chunkmem/fwd.hpp -> fwd.hpp
  string(REGEX REPLACE "^chunkmem/([^/]+).*" "\\1" folder "${header}")
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

# Headers: names, pragma, includes, floors, twins. What each includes is kept in includes_<header>.
file(GLOB_RECURSE headers RELATIVE "${include}" "${include}/chunkmem/*.hpp" "${include}/chunkmem/*.cuh")
foreach(header IN LISTS headers)
  set(file "${include}/${header}")
  folder_of(folder "${header}")
  cmake_path(GET header FILENAME name)
  cmake_path(GET header STEM LAST_ONLY stem)
  if(NOT DEFINED floor_${folder})
    violation("unknown folder: ${header} lies in ${folder}, which cmake/floors.txt does not name")
    continue()
  endif()
  if(DEFINED seen_${name})
    violation("duplicate name: ${header} and ${seen_${name}}")
  endif()
  set(seen_${name} "${header}")

  file(STRINGS "${file}" pragma REGEX "^#pragma once$")
  if(NOT pragma)
    violation("no pragma: ${header} lacks #pragma once")
  endif()
  if(NOT folder STREQUAL name AND NOT name MATCHES "[.]cuh$" AND
     NOT EXISTS "${ROOT}/tests/${folder}/${stem}_test.cpp" AND
     NOT EXISTS "${ROOT}/tests/${folder}_${opt_in_${header}}/${stem}_test.cpp")
    violation("no twin: ${header} has no tests/${folder}/${stem}_test.cpp")
  endif()

  set(includes_${header} "")
  file(STRINGS "${file}" lines REGEX "^[ \t]*#[ \t]*include")
  foreach(line IN LISTS lines)
    if(line MATCHES "include[ \t]*\"")
      violation("quotes: ${header} says ${line}, write <chunkmem/...>")
    endif()
    if(NOT line MATCHES "include[ \t]*[<\"]([^>\"]+)[>\"]")
      continue()
    endif()
    set(included "${CMAKE_MATCH_1}")
    if(header STREQUAL "chunkmem/core/version.hpp" AND included STREQUAL "needs_c++20")
      continue() # never there: it ends a compilation as C++17
    endif()
    list(APPEND includes_${header} "${included}")
    if(folder STREQUAL "fwd.hpp" AND NOT included MATCHES "^(cstdint|cstddef)$")
      violation("fwd.hpp includes ${included}; only cstdint and cstddef are allowed there")
    endif()
    set(is_free FALSE) # may need anything
    if(DEFINED opt_in_${header} OR header MATCHES "[.]cuh$")
      set(is_free TRUE)
    endif()
    if(NOT included MATCHES "^chunkmem/")
      if(NOT is_free AND line MATCHES "<" AND NOT included IN_LIST std_headers AND NOT included IN_LIST system_headers)
        violation("foreign: ${header} includes <${included}>, not of the standard library, and cmake/opt_in_headers.txt "
                  "does not name it")
      endif()
      continue()
    endif()
    if(NOT is_free AND (DEFINED opt_in_${included} OR included MATCHES "[.]cuh$"))
      violation("opt-in: ${header} includes ${included}, which needs more than the standard library")
    endif()
    folder_of(other "${included}")
    if(NOT EXISTS "${include}/${included}")
      violation("no such header: ${header} includes ${included}")
    elseif(NOT DEFINED floor_${other})
      violation("unknown folder: ${header} includes ${included}")
    elseif(other STREQUAL folder)
      continue()
    elseif(floor_${other} GREATER floor_${folder})
      violation("upward include: ${header} (floor ${floor_${folder}}) includes ${included} (floor ${floor_${other}})")
    elseif(floor_${other} EQUAL floor_${folder})
      violation("sideways include: ${header} includes ${included}, both on floor ${floor_${folder}}")
    elseif(included MATCHES "/detail/")
      violation("foreign detail: ${header} includes ${included}")
    endif()
  endforeach()
endforeach()

# The umbrella and all it reaches through our own headers: the standard library, without the three costly ones.
set(reached chunkmem/chunkmem.hpp)
set(waiting chunkmem/chunkmem.hpp)
while(waiting)
  list(POP_FRONT waiting header)
  foreach(included IN LISTS includes_${header})
    if(included MATCHES "^chunkmem/")
      if(NOT included IN_LIST reached)
        list(APPEND reached "${included}")
        list(APPEND waiting "${included}")
      endif()
    elseif(included MATCHES "^(thread|chrono|functional)$")
      violation("umbrella: chunkmem.hpp reaches <${included}> through ${header}")
    elseif(NOT included IN_LIST std_headers)
      violation("umbrella: chunkmem.hpp reaches <${included}>, not of the standard library, through ${header}")
    endif()
  endforeach()
endwhile()

list(LENGTH headers total)
if(total EQUAL 0)
  violation("no headers in ${include}/chunkmem")
endif()
if(violations)
  list(LENGTH violations count)
  list(JOIN violations "\n  " text)
  message(FATAL_ERROR "layout: ${count} violations\n  ${text}")
endif()
message(STATUS "layout: ${total} headers keep the rules")
