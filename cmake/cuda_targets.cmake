# SPDX-License-Identifier: Apache-2.0
# CUDA programs and single units. `all` builds none of them: the ctests cuda.programs and cuda.compile do, so that an
# untested nvcc fails these two and nothing else.

# The runtime that chunkmem::cuda links: two runtimes in a program would not share their state.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)

# chunkmem_only_compile(<target>): where tests are built, programs that no test runs without a GPU are compiled as fast
# as possible. The presets gpu and bench compile them optimised.
set(chunkmem_quick_device_flags "")
if(chunkmem_nvcc)
  set(chunkmem_quick_device_flags -Xptxas -O1)
  execute_process(COMMAND "${chunkmem_nvcc}" --help OUTPUT_VARIABLE help ERROR_QUIET)
  if(help MATCHES "--Ofast-compile")
    set(chunkmem_quick_device_flags --Ofast-compile=max)
  endif()
endif()
function(chunkmem_only_compile target)
  target_compile_options(${target} PRIVATE "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:RelWithDebInfo>>:-O0>"
                                           "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<CONFIG:RelWithDebInfo>>:${chunkmem_quick_device_flags}>")
endfunction()

# chunkmem_on_gpu(<program> <ctest...>): these tests need a GPU, one at a time, and their program built first.
function(chunkmem_on_gpu program)
  chunkmem_only_compile(${program})
  set_target_properties(${program} PROPERTIES EXCLUDE_FROM_ALL ON)
  set_property(GLOBAL APPEND PROPERTY CHUNKMEM_CUDA_PROGRAMS ${program})
  set_tests_properties(${ARGN} PROPERTIES FIXTURES_REQUIRED cuda_programs RESOURCE_LOCK gpu)
endfunction()

# chunkmem_add_cuda_targets(): the targets cuda_programs and cuda_units with their ctests, after all programs are known.
function(chunkmem_add_cuda_targets)
  if(CHUNKMEM_SANITIZE)
    return()
  elseif(NOT chunkmem_nvcc)
    foreach(name IN ITEMS cuda.programs cuda.compile)
      chunkmem_skipped_test(${name} "${chunkmem_why_no_nvcc}")
    endforeach()
    chunkmem_skipped_test(cuda.compile_all "${chunkmem_why_no_nvcc}" LABELS slow)
    return()
  endif()

  get_property(programs GLOBAL PROPERTY CHUNKMEM_CUDA_PROGRAMS)
  add_custom_target(cuda_programs)
  if(programs)
    add_dependencies(cuda_programs ${programs})
  endif()

  # Every tests/<folder>/*.cu that is no part of a program, except tests/kernels, which compiles its own. All as one
  # unit, so that their includes are read once.
  #
  # And each .cuh alone and twice, to PTX, which finds missing includes in half the time; but not where a .cu includes
  # it first.
  file(GLOB_RECURSE found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/*.cu")
  set(units "")
  set(first_of_units "")
  set(seen_alone "")
  foreach(unit IN LISTS found)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${unit}")
    file(STRINGS "${unit}" first REGEX "^#include" LIMIT_COUNT 1)
    string(REGEX REPLACE "^#include <(.*)>$" "\\1" first "${first}")
    if(unit MATCHES "/tests/(gpu|kernels)/")
      list(APPEND seen_alone "${first}")
    elseif(unit MATCHES "/tests/package/") # a consumer's own
      continue()
    elseif(first MATCHES "[.]cuh$")
      list(PREPEND units "${unit}")
      set(first_of_units "${first}")
    else()
      list(APPEND units "${unit}")
    endif()
  endforeach()
  list(APPEND seen_alone "${first_of_units}")
  if(NOT DEFINED CMAKE_UNITY_BUILD)
    list(TRANSFORM units REPLACE "(.+)" "#include \"\\1\"\n")
    list(JOIN units "" as_one)
    set(units "${PROJECT_BINARY_DIR}/generated/cuda_units.cu")
    file(CONFIGURE OUTPUT "${units}" CONTENT "${as_one}" @ONLY)
  endif()
  file(GLOB_RECURSE names RELATIVE "${PROJECT_SOURCE_DIR}/include" CONFIGURE_DEPENDS
       "${PROJECT_SOURCE_DIR}/include/chunkmem/*.cuh")
  list(REMOVE_ITEM names ${seen_alone})
  set(headers "")
  foreach(name IN LISTS names)
    set(unit "${PROJECT_BINARY_DIR}/generated/${name}.cu")
    file(CONFIGURE OUTPUT "${unit}" CONTENT "#include <${name}>\n#include <${name}>\n")
    list(APPEND headers "${unit}")
  endforeach()
  add_custom_target(cuda_units)
  foreach(kind IN ITEMS units headers)
    if(${kind})
      add_library(cuda_${kind}_alone OBJECT EXCLUDE_FROM_ALL ${${kind}})
      chunkmem_flags(cuda_${kind}_alone)
      chunkmem_only_compile(cuda_${kind}_alone)
      target_include_directories(cuda_${kind}_alone PRIVATE "${PROJECT_SOURCE_DIR}/tests")
      target_link_libraries(cuda_${kind}_alone PRIVATE chunkmem::cuda $<TARGET_NAME_IF_EXISTS:chunkmem::nccl>)
      add_dependencies(cuda_units cuda_${kind}_alone)
    endif()
  endforeach()
  if(headers)
    set_target_properties(cuda_headers_alone PROPERTIES CUDA_PTX_COMPILATION ON CUDA_ARCHITECTURES 90)
  endif()

  foreach(name IN ITEMS programs compile)
    set(target cuda_programs)
    if(name STREQUAL "compile")
      set(target cuda_units)
    endif()
    chunkmem_test(cuda.${name} TIMEOUT 1800
                  COMMAND ${CMAKE_COMMAND} --build "${PROJECT_BINARY_DIR}" --target ${target} --parallel 2)
    set_tests_properties(cuda.${name} PROPERTIES PROCESSORS 2 COST 2000 RESOURCE_LOCK build)
  endforeach()
  set_tests_properties(cuda.programs PROPERTIES FIXTURES_SETUP cuda_programs)
  set(files "")
  foreach(program IN LISTS programs)
    list(APPEND files "$<TARGET_FILE:${program}>")
  endforeach()
  if(files)
    chunkmem_test(cuda.code_of_programs LABELS gpu
                  COMMAND "${CHUNKMEM_PYTHON}" -B "${PROJECT_SOURCE_DIR}/tests/kernels/architectures.py"
                          --want "${CMAKE_CUDA_ARCHITECTURES}" ${files})
    set_tests_properties(cuda.code_of_programs PROPERTIES FIXTURES_REQUIRED cuda_programs)
  endif()
  chunkmem_test(cuda.compile_all LABELS slow TIMEOUT 7200
                COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DBUILD=${PROJECT_BINARY_DIR}/cuda_all
                        -DGENERATOR=${CMAKE_GENERATOR} -DCOMPILER=${CMAKE_CXX_COMPILER} -DNVCC=${chunkmem_nvcc}
                        -DNVCC_VERSION=${CMAKE_CUDA_COMPILER_VERSION} -P "${PROJECT_SOURCE_DIR}/cmake/compile_all.cmake")
endfunction()
