# SPDX-License-Identifier: Apache-2.0
# Most of a cold run is g++. It takes a twelfth less time with fewer garbage collections, for at most 0.7 GB more in
# each process.
set(chunkmem_quick_flags "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(chunkmem_quick_flags "SHELL:--param ggc-min-expand=300 --param ggc-min-heapsize=524288")
endif()

# Warnings of nvcc and of its host compiler.
set(chunkmem_nvcc_warnings -Xcompiler=-Wall,-Wextra,-Wconversion,-Wshadow)
if(CHUNKMEM_WERROR)
  list(APPEND chunkmem_nvcc_warnings -Werror=all-warnings -Xcompiler=-Werror)
endif()

# chunkmem_program(<name> <sources...>): one program of this tree, with its warnings; no flag of it reaches a user.
function(chunkmem_flags target)
  set(warnings -Wall -Wextra -Wconversion -Wshadow $<$<BOOL:${CHUNKMEM_WERROR}>:-Werror>)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${warnings};${chunkmem_sanitize_flags};${chunkmem_quick_flags}>"
                                           "$<$<COMPILE_LANGUAGE:CUDA>:${chunkmem_nvcc_warnings}>")
  target_link_options(${target} PRIVATE ${chunkmem_sanitize_flags})
  target_link_libraries(${target} PRIVATE chunkmem::chunkmem)
  if(chunkmem_nvcc)
    chunkmem_enable_cuda20(${target})
  endif()
endfunction()

function(chunkmem_program name)
  add_executable(${name} ${ARGN})
  chunkmem_flags(${name})
endfunction()

# chunkmem_compile_as_one(<target>): where tests are built, up to 32 of its files are compiled as one, since files with
# a manager share half of their code. A file with compile options of its own is compiled alone. While editing one file,
# the preset edit (CMAKE_UNITY_BUILD=OFF) compiles each alone.
#
# The largest takes 4.7 GB. Only as many are compiled at a time as fit into the machine's memory.
cmake_host_system_information(RESULT chunkmem_memory QUERY TOTAL_PHYSICAL_MEMORY) # MiB
math(EXPR chunkmem_large_units "${chunkmem_memory} / 5000")
if(chunkmem_large_units LESS 1)
  set(chunkmem_large_units 1)
endif()
set_property(GLOBAL APPEND PROPERTY JOB_POOLS chunkmem_large=${chunkmem_large_units})
function(chunkmem_compile_as_one target)
  if(CHUNKMEM_BUILD_TESTS AND NOT DEFINED CMAKE_UNITY_BUILD)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 32 JOB_POOL_COMPILE chunkmem_large)
  endif()
endfunction()

# Tests of several folders are compiled together, unless one folder is selected.
set(chunkmem_are_joined ON)
if(DEFINED CMAKE_UNITY_BUILD OR CHUNKMEM_ONLY_TESTS)
  set(chunkmem_are_joined OFF)
endif()

# chunkmem_read_folder(<folder>): the special settings of a folder. Its optional ctest.cmake may set
#   chunkmem_labels            ctest labels of the folder, such as threads
#   chunkmem_compile_options   added last to the flags of the folder's program
#   chunkmem_libraries         linked to it
#   chunkmem_timeout           seconds that one run may take (600 where unset)
#   chunkmem_processors        that its test needs for itself (1 where unset): threads that wait for each other are slow next to a busy process
#   chunkmem_why_not           why it cannot be built here: its test is listed and skipped with this reason
#   chunkmem_only_bench        ON where a folder of bench/ has no part in the tests
#   chunkmem_unsanitized       ON where no sanitizer needs it: it has no bytes, or other folders run the same code under them; its
#                              programs for components stay
#   chunkmem_sanitized_files   exceptions of these: a regular expression for files that sanitizers need all the same
#   chunkmem_joint             name of a program that has the tests of several folders: what they all use is compiled once. Nothing but
#                              components may be linked to it, and it has no compile options
#   chunkmem_own_programs      ON where the file has added the folder's programs itself
# and may add tests of its own.
macro(chunkmem_read_folder folder)
  set(chunkmem_labels "")
  set(chunkmem_compile_options "")
  set(chunkmem_libraries "")
  set(chunkmem_timeout 600)
  set(chunkmem_processors 1)
  set(chunkmem_why_not "")
  set(chunkmem_only_bench OFF)
  set(chunkmem_unsanitized OFF)
  set(chunkmem_sanitized_files "")
  set(chunkmem_joint "")
  set(chunkmem_own_programs OFF)
  include("${folder}/ctest.cmake" OPTIONAL)
endmacro()

# chunkmem_test(<name> LABELS <label...> COMMAND <command...>): a ctest that gets the folder of figures. It counts as
# skipped when it prints a line that begins with SKIPPED and returns 4, Catch2's status for "all cases skipped".
function(chunkmem_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "LABELS;COMMAND")
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" SKIP_RETURN_CODE 4
                       ENVIRONMENT "CHUNKMEM_FIGURES=${PROJECT_BINARY_DIR}/figures")
  if(chunkmem_cuda_include) # for tests that read the toolkit's headers
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "CHUNKMEM_CUDA_INCLUDE=${chunkmem_cuda_include}")
  endif()
  if(CMAKE_CROSSCOMPILING)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "CHUNKMEM_EMULATED=1")
  endif()
  if(arg_TIMEOUT)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT})
  endif()
endfunction()

# chunkmem_mpi_command(<out>): starts an MPI program in a test. chunkmem_mpi_environment keeps Open MPI quiet in any
# place: as root, with more ranks than cores, without a network, without ssh, in a container.
set(chunkmem_mpi_environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm=isolated
    OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl_base_warn_component_unused=0)
function(chunkmem_mpi_command out)
  execute_process(COMMAND ${chunkmem_mpi_launcher} --version OUTPUT_VARIABLE made ERROR_QUIET)
  set(start "${chunkmem_mpi_launcher}")
  if(made MATCHES "Open MPI|open-mpi")
    list(APPEND start --oversubscribe --bind-to none)
  endif()
  set(${out} "${start}" PARENT_SCOPE)
endfunction()

# chunkmem_skipped_test(<name> <reason> [LABELS <label...>]): a test that cannot run here is listed with its reason,
# never silently absent.
function(chunkmem_skipped_test name reason)
  chunkmem_test(${name} ${ARGN} COMMAND sh -c "echo \"$1\"; exit 4" sh "SKIPPED: ${reason}")
endfunction()
