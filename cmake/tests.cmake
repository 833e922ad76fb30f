# SPDX-License-Identifier: Apache-2.0
# Tests: one program and one ctest per folder tests/<folder>/*_test.cpp.
set(CHUNKMEM_CATCH2_INCLUDE "$ENV{CHUNKMEM_CATCH2_INCLUDE}" CACHE PATH
    "Folder with catch2/catch.hpp, version 2 in one header, for machines where Catch2 is not installed")
add_library(chunkmem_catch2 INTERFACE)
if(CHUNKMEM_CATCH2_INCLUDE)
  if(NOT EXISTS "${CHUNKMEM_CATCH2_INCLUDE}/catch2/catch.hpp")
    message(FATAL_ERROR "chunkmem: there is no ${CHUNKMEM_CATCH2_INCLUDE}/catch2/catch.hpp (CHUNKMEM_CATCH2_INCLUDE)")
  endif()
  target_include_directories(chunkmem_catch2 SYSTEM INTERFACE "${CHUNKMEM_CATCH2_INCLUDE}")
  chunkmem_summarize("tests: Catch2" "on " "the header in ${CHUNKMEM_CATCH2_INCLUDE}")
else()
  find_package(Catch2 QUIET)
  if(NOT Catch2_FOUND)
    message(FATAL_ERROR "chunkmem: the tests need Catch2 (2.13 or 3) and it was not found. Install it (Debian: apt-get install "
            "catch2), name a folder with catch2/catch.hpp (-DCHUNKMEM_CATCH2_INCLUDE=...) or switch the tests off with "
            "-DCHUNKMEM_BUILD_TESTS=OFF")
  endif()
  target_link_libraries(chunkmem_catch2 INTERFACE Catch2::Catch2) # tests/support/main.cpp is the main program
  chunkmem_summarize("tests: Catch2" "on " "${Catch2_VERSION}")
endif()

# Python, with only its standard library: it checks pages and the tree, and extracts the examples of pages.
find_program(CHUNKMEM_PYTHON NAMES python3 DOC "Python 3.9 or newer, for the tests; with safetensors, numpy and torch it runs more of them")
mark_as_advanced(CHUNKMEM_PYTHON)
if(NOT CHUNKMEM_PYTHON)
  message(FATAL_ERROR "chunkmem: the tests need python3 and it was not found. Install it (Debian: apt-get install python3), name it "
          "(-DCHUNKMEM_PYTHON=...) or switch the tests off with -DCHUNKMEM_BUILD_TESTS=OFF")
endif()

# Headers that need a component: chunkmem_opt_in_<component> lists them.
set(opt_in_list "${PROJECT_SOURCE_DIR}/cmake/opt_in_headers.txt")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${opt_in_list}")
set(chunkmem_opt_in "")
foreach(component IN LISTS chunkmem_components)
  file(STRINGS "${opt_in_list}" chunkmem_opt_in_${component} REGEX "^[^#]+ ${component}$")
  list(TRANSFORM chunkmem_opt_in_${component} REPLACE " .*" "")
  list(APPEND chunkmem_opt_in ${chunkmem_opt_in_${component}})
endforeach()

add_library(chunkmem_test_main OBJECT "${PROJECT_SOURCE_DIR}/tests/support/main.cpp")
chunkmem_flags(chunkmem_test_main)
target_include_directories(chunkmem_test_main PUBLIC "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(chunkmem_test_main PUBLIC chunkmem_catch2)

# Every other header in one unit, with warnings that trainers treat as errors and the tests do not: where g++ and where
# clang compile the tests. The ctest headers.one_unit checks its definitions.
if(NOT "thread" IN_LIST CHUNKMEM_SANITIZE AND NOT CHUNKMEM_ONLY_TESTS)
  file(GLOB_RECURSE chunkmem_headers RELATIVE "${PROJECT_SOURCE_DIR}/include/chunkmem" CONFIGURE_DEPENDS
       "${PROJECT_SOURCE_DIR}/include/chunkmem/*.hpp")
  list(REMOVE_ITEM chunkmem_headers ${chunkmem_opt_in})
  list(TRANSFORM chunkmem_headers REPLACE "(.+)" "#include <chunkmem/\\1>\n")
  list(JOIN chunkmem_headers "" one_unit)
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/every_header.cpp" CONTENT "${one_unit}" @ONLY)
  add_library(chunkmem_one_unit OBJECT "${PROJECT_BINARY_DIR}/generated/every_header.cpp")
  chunkmem_flags(chunkmem_one_unit)
  target_compile_options(chunkmem_one_unit PRIVATE -Wsign-conversion -Wold-style-cast -Wnon-virtual-dtor -Woverloaded-virtual)
endif()

# The common includes of tests, compiled once: half of the time of a small test. The ctest headers checks that each
# header compiles without others before it.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/precompiled.cpp" CONTENT "// Nothing: it carries the precompiled header.\n")
add_library(chunkmem_test_precompiled OBJECT "${PROJECT_BINARY_DIR}/generated/precompiled.cpp")
chunkmem_flags(chunkmem_test_precompiled)
target_include_directories(chunkmem_test_precompiled PRIVATE "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(chunkmem_test_precompiled PRIVATE chunkmem_catch2)
target_precompile_headers(chunkmem_test_precompiled PRIVATE <support/catch.hpp>)

# Replacements of allocation functions, for programs with a test that counts allocations
# (support/count_allocations.hpp).
add_library(chunkmem_counted_allocations OBJECT EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/tests/support/count_allocations.cpp")
chunkmem_flags(chunkmem_counted_allocations)
target_include_directories(chunkmem_counted_allocations PRIVATE "${PROJECT_SOURCE_DIR}/tests")

# chunkmem_test_program(<name> <folder> <sources...>): the program test_<name> and its ctest <name>, with the settings
# of <folder>.
# The test of a header that needs a component, tests/<header>_test.cpp, is in a program for each component, <name>.<component>.
function(chunkmem_test_program name folder)
  set(sources ${ARGN})
  chunkmem_read_folder("${folder}")
  if(chunkmem_own_programs)
    return()
  endif()
  foreach(component IN LISTS chunkmem_components)
    set(of_component "")
    foreach(header IN LISTS chunkmem_opt_in_${component})
      string(REGEX REPLACE "[.]hpp$" "_test.cpp" test "${PROJECT_SOURCE_DIR}/tests/${header}")
      if("${test}" IN_LIST sources)
        list(APPEND of_component "${test}")
      endif()
    endforeach()
    list(REMOVE_ITEM sources ${of_component})
    if(CHUNKMEM_SANITIZE AND chunkmem_unsanitized AND chunkmem_sanitized_files)
      list(FILTER of_component INCLUDE REGEX "/(${chunkmem_sanitized_files})$")
    endif()
    if(of_component)
      set(outer_why_not "${chunkmem_why_not}")
      set(outer_libraries "${chunkmem_libraries}")
      set(chunkmem_why_not "${chunkmem_why_no_${component}}")
      list(APPEND chunkmem_libraries chunkmem::${component})
      chunkmem_add_test_program(${name}.${component} ${of_component})
      set(chunkmem_why_not "${outer_why_not}")
      set(chunkmem_libraries "${outer_libraries}")
    endif()
  endforeach()
  if(CHUNKMEM_SANITIZE AND chunkmem_unsanitized)
    list(FILTER sources INCLUDE REGEX "/(${chunkmem_sanitized_files})$")
  endif()
  if(sources)
    chunkmem_add_test_program(${name} ${sources})
  endif()
endfunction()

# chunkmem_part(<part> <regex>): for the ctest.cmake of a folder: its tests <regex>_test.cpp become a program and a ctest of their own,
# <folder>.<part>, with the settings that are in force at the call. Parts come first, the settings of the other tests after them.
macro(chunkmem_part part regex)
  set(part_sources ${sources})
  list(FILTER part_sources INCLUDE REGEX "/(${regex})_test[.]cpp$")
  list(REMOVE_ITEM sources ${part_sources})
  if(NOT part_sources)
    message(FATAL_ERROR "chunkmem: no test of ${folder} is part ${part}")
  elseif(NOT (CHUNKMEM_SANITIZE AND chunkmem_unsanitized))
    chunkmem_add_test_program(${name}.${part} ${part_sources})
  endif()
endmacro()

# chunkmem_join(<joint> <libraries> <sources...>): adds files to the program test_<joint>, and makes the program if it
# does not exist.
function(chunkmem_join joint libraries)
  set(program test_${joint})
  if(NOT TARGET ${program})
    chunkmem_program(${program})
    chunkmem_compile_as_one(${program})
    set_target_properties(${program} PROPERTIES UNITY_BUILD_BATCH_SIZE 0)
    target_link_libraries(${program} PRIVATE chunkmem_test_main)
    target_precompile_headers(${program} REUSE_FROM chunkmem_test_precompiled)
  endif()
  foreach(source IN LISTS ARGN) # their names choose the cases of a ctest
    cmake_path(GET source STEM name)
    get_property(names GLOBAL PROPERTY chunkmem_names_in_${joint})
    if(name IN_LIST names)
      message(FATAL_ERROR "chunkmem: ${program} has two files ${name}.cpp (give ${source} another name)")
    endif()
    set_property(GLOBAL APPEND PROPERTY chunkmem_names_in_${joint} ${name})
  endforeach()
  target_sources(${program} PRIVATE ${ARGN})
  target_link_libraries(${program} PRIVATE ${libraries})
endfunction()

# chunkmem_cases(<out> <tag> <sources...>): the arguments that select the cases of these files with that tag.
function(chunkmem_cases out tag)
  set(cases "")
  foreach(source IN LISTS ARGN)
    cmake_path(GET source STEM name)
    list(APPEND cases "[#${name}]${tag}")
  endforeach()
  list(JOIN cases "," cases)
  set(${out} --filenames-as-tags "${cases}" PARENT_SCOPE)
endfunction()

# The program and its ctest, with the settings of chunkmem_read_folder. Cases with the tag [.slow] are hidden from that
# test and get the ctest <name>.slow with the label slow. Files are compiled as one (chunkmem_compile_as_one): each test
# has a namespace of its own name, and a file that defines a macro is compiled alone.
#
# Where the folder names a joint program, its tests run in that program, and the program test_<name> is built only on
# request.
function(chunkmem_add_test_program name)
  if(CHUNKMEM_ONLY_TESTS AND NOT name IN_LIST CHUNKMEM_ONLY_TESTS)
    return()
  elseif("thread" IN_LIST CHUNKMEM_SANITIZE AND NOT "threads" IN_LIST chunkmem_labels)
    return()
  elseif(chunkmem_why_not)
    chunkmem_skipped_test(${name} "${chunkmem_why_not}" LABELS ${chunkmem_labels})
    return()
  endif()

  set(slow_name "")
  set(counts "")
  foreach(source IN LISTS ARGN)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
    file(STRINGS "${source}" slow_line REGEX "\\[\\.slow\\]" LIMIT_COUNT 1)
    if(slow_line)
      set(slow_name ${name}.slow)
    endif()
    file(STRINGS "${source}" counting_line REGEX "<support/count_allocations.hpp>" LIMIT_COUNT 1)
    if(counting_line)
      set(counts chunkmem_counted_allocations)
    endif()
    file(STRINGS "${source}" macro_line REGEX "^#define" LIMIT_COUNT 1)
    if(macro_line)
      set_source_files_properties("${source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()

  chunkmem_program(test_${name} ${ARGN})
  chunkmem_compile_as_one(test_${name})
  target_compile_options(test_${name} PRIVATE ${chunkmem_compile_options})
  target_link_libraries(test_${name} PRIVATE chunkmem_test_main ${chunkmem_libraries} ${counts})
  if(NOT chunkmem_compile_options AND NOT chunkmem_libraries)
    target_precompile_headers(test_${name} REUSE_FROM chunkmem_test_precompiled)
  endif()
  set(program test_${name})
  set(cases "")
  set(slow_cases "[.slow]")
  if(chunkmem_joint AND chunkmem_are_joined)
    set_target_properties(test_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    chunkmem_join(${chunkmem_joint} "${chunkmem_libraries};${counts}" ${ARGN})
    set(program test_${chunkmem_joint})
    chunkmem_cases(cases "~[.]" ${ARGN})
    chunkmem_cases(slow_cases "[.slow]" ${ARGN})
  endif()
  chunkmem_test(${name} LABELS ${chunkmem_labels} TIMEOUT ${chunkmem_timeout} COMMAND ${program} ${cases})
  set_tests_properties(${name} PROPERTIES PROCESSORS ${chunkmem_processors})
  if("figures" IN_LIST chunkmem_labels AND NOT "gpu" IN_LIST chunkmem_labels)
    chunkmem_makes_figures(${program})
  endif()
  if(slow_name)
    list(REMOVE_ITEM chunkmem_labels figures)
    chunkmem_test(${slow_name} LABELS slow ${chunkmem_labels} TIMEOUT 7200 COMMAND ${program} ${slow_cases})
  endif()
  if("gpu" IN_LIST chunkmem_labels)
    chunkmem_on_gpu(test_${name} ${name} ${slow_name})
  endif()
endfunction()
