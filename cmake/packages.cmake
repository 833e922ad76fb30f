# SPDX-License-Identifier: Apache-2.0
# Packages that programs of this tree use and the library does not. The config file of a package may stop CMake, for
# example where one of its libraries was removed. So a separate project loads each package first, and only a package
# that passed is loaded here. Each configuration checks again, because a package may have been changed or removed since
# the last one.
include("${CMAKE_CURRENT_LIST_DIR}/known_compiler.cmake")

# chunkmem_rehearse(<why_not> <package> <libraries> [<word of find_package...>]): finds <package> and links <libraries>
# in that project.
function(chunkmem_rehearse why_not package libraries)
  set(${why_not} "" PARENT_SCOPE)
  get_property(has_passed GLOBAL PROPERTY CHUNKMEM_REHEARSED_${package})
  if(has_passed)
    return()
  endif()
  # The caller's choices: compiler, flags, prefixes, folders to ignore.
  set(choices "")
  get_cmake_property(names CACHE_VARIABLES)
  foreach(name IN LISTS names)
    get_property(type CACHE "${name}" PROPERTY TYPE)
    if(type MATCHES "^(PATH|FILEPATH|STRING|BOOL|UNINITIALIZED)$")
      string(APPEND choices "set(${name} [==[$CACHE{${name}}]==] CACHE STRING \"\")\n")
    endif()
  endforeach()
  set(folder "${PROJECT_BINARY_DIR}/generated/rehearsals/${package}")
  # The detected properties of the compiler stay, the found packages are removed.
  string(SHA256 build "${CMAKE_COMMAND} ${CMAKE_GENERATOR} ${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION}")
  string(SUBSTRING "${build}" 0 8 build)
  file(REMOVE "${folder}/${build}/CMakeCache.txt")
  chunkmem_known_compiler("${CMAKE_BINARY_DIR}" "${folder}/${build}" CXX)
  file(WRITE "${folder}/choices.cmake" "${choices}")
  file(WRITE "${folder}/main.cpp" "int main() {}\n")
  file(WRITE "${folder}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)
project(rehearsal LANGUAGES CXX)
find_package(${package} QUIET ${ARGN})
if(${package}_FOUND)
  add_executable(rehearsal main.cpp)
  target_link_libraries(rehearsal PRIVATE ${libraries})
  message(STATUS \"found <\${${package}_DIR}>\")
endif()
")
  execute_process(COMMAND ${CMAKE_COMMAND} -S "${folder}" -B "${folder}/${build}" -G "${CMAKE_GENERATOR}"
                          -C "${folder}/choices.cmake"
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(status EQUAL 0 AND output MATCHES "found <")
    set_property(GLOBAL PROPERTY CHUNKMEM_REHEARSED_${package} ON)
  elseif(status EQUAL 0)
    set(${why_not} "no ${package} was found" PARENT_SCOPE)
  else()
    string(FIND "${output}" "CMake Error" begin)
    if(begin GREATER 0)
      string(SUBSTRING "${output}" ${begin} -1 output)
    endif()
    string(REGEX REPLACE "^CMake Error[^\n]*\n|Possible reasons.*|Call Stack.*" "" output "${output}")
    string(REGEX REPLACE "[ \n;]+" " " output "${output}")
    string(SUBSTRING "${output}" 0 200 output)
    string(STRIP "${output}" output)
    set(${why_not} "${package} cannot be loaded: ${output}" PARENT_SCOPE)
  endif()
endfunction()

# chunkmem_find_package(<why_not> <package> <target> <Debian's name> PROGRAM <source>): finds <package> and tries its
# <target> with the program <source>. Sets <package>_VERSION.
function(chunkmem_find_package why_not package target debian_name)
  cmake_parse_arguments(PARSE_ARGV 4 arg "" "PROGRAM" "")
  chunkmem_rehearse(missing ${package} ${target})
  if(NOT missing AND NOT TARGET ${target})  # two folders may use it, and a package may not allow to be found twice
    find_package(${package} QUIET)
    set(${package}_VERSION "${${package}_VERSION}" PARENT_SCOPE)
  endif()
  if(NOT missing)
    chunkmem_try(missing ${package} LIBRARIES ${target} PROGRAM "${arg_PROGRAM}")
    if(missing)
      string(PREPEND missing "${package}: ")
    endif()
  endif()
  if(missing MATCHES "^no ")
    string(APPEND missing " (Debian: apt-get install ${debian_name})")
  endif()
  set(${why_not} "${missing}" PARENT_SCOPE)
endfunction()
