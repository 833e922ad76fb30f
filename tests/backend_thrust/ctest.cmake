# SPDX-License-Identifier: Apache-2.0
# Thrust on the CPU: a program for each system, since a program has one. Trainers do not include Thrust and are compiled
# once for all. No labels: the thread sanitizer does not understand how OpenMP and TBB wait.
if(NOT "thread" IN_LIST CHUNKMEM_SANITIZE)
  include("${PROJECT_SOURCE_DIR}/cmake/thrust.cmake")
  chunkmem_find_thrust_systems()
  add_library(thrust_matrix OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/float_matrix.cpp"
              "${CMAKE_CURRENT_LIST_DIR}/mixed_matrix.cpp")
  chunkmem_flags(thrust_matrix)
  chunkmem_compile_as_one(thrust_matrix)
  target_link_libraries(thrust_matrix PRIVATE chunkmem_test_main)
  target_precompile_headers(thrust_matrix REUSE_FROM chunkmem_test_precompiled)

  set(systems omp tbb cpp) # the last one is the folder's own program
  if(CHUNKMEM_SANITIZE) # one is enough there
    set(systems cpp)
  endif()
  foreach(system IN LISTS systems)
    set(chunkmem_why_not "${chunkmem_why_no_thrust_${system}}")
    set(chunkmem_libraries thrust_matrix chunkmem_thrust_${system})
    if(NOT system STREQUAL "cpp")
      chunkmem_add_test_program(backend_thrust.${system} "${CMAKE_CURRENT_LIST_DIR}/thrust_device_test.cpp")
    endif()
  endforeach()
  # More threads than this machine may have, and none that spins while others compile.
  if(TEST backend_thrust.omp)
    set_property(TEST backend_thrust.omp APPEND PROPERTY ENVIRONMENT OMP_NUM_THREADS=3 OMP_WAIT_POLICY=passive)
  endif()

  # A program that must not compile, and the sentence of its error.
  if(NOT chunkmem_why_no_thrust_cpp AND NOT CHUNKMEM_SANITIZE)
    set(compile ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -I${PROJECT_SOURCE_DIR}/include)
    if(NOT CHUNKMEM_THRUST_INCLUDE IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
      list(APPEND compile -isystem ${CHUNKMEM_THRUST_INCLUDE})
    endif()
    list(APPEND compile "${CMAKE_CURRENT_LIST_DIR}/foreign_system.cpp")
    chunkmem_test(backend_thrust.no_system COMMAND ${compile})
    set_tests_properties(backend_thrust.no_system PROPERTIES PASS_REGULAR_EXPRESSION "error: .*which Thrust system[?]")
    chunkmem_test(backend_thrust.foreign_system COMMAND ${compile} -DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP)
    set_tests_properties(backend_thrust.foreign_system PROPERTIES
                         PASS_REGULAR_EXPRESSION "this Thrust system does not share the memory of the caller")
  endif()
endif()
