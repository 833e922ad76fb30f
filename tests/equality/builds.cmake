# SPDX-License-Identifier: Apache-2.0
# Builds of builds.cpp, one for each compiler and set of flags, and the ctests equality.builds and equality.aarch64 that compare them.
find_program(chunkmem_second_compiler NAMES clang++-16 clang++-19 clang++-18 clang++-17)
set(compilers "${CMAKE_CXX_COMPILER}")
if(chunkmem_second_compiler AND NOT chunkmem_second_compiler STREQUAL CMAKE_CXX_COMPILER)
  list(APPEND compilers "${chunkmem_second_compiler}")
endif()
list(LENGTH compilers number_of_compilers)
# flags that docs/numerics.md promises to keep the bits
set(flag_sets "-O0" "-O3 -ffp-contract=off -frounding-math -fno-math-errno" "-O3 -ffp-contract=fast -fno-trapping-math")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(APPEND flag_sets "-O2 -march=native -ffp-contract=fast -mrecip")
endif()

# chunkmem_build_of_bits(<out> <compiler> <flags>): builds.cpp by this compiler, appended to the list.
function(chunkmem_build_of_bits out compiler flags)
  cmake_path(GET compiler FILENAME build)
  string(MAKE_C_IDENTIFIER "bits_${build}_${flags}" build)
  set(program "${PROJECT_BINARY_DIR}/equality_builds/${build}")
  separate_arguments(flags)
  add_custom_command(OUTPUT "${program}" VERBATIM DEPFILE "${program}.d"
                     COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${compiler} -std=c++20 ${flags} -Wall -Wextra -Wconversion -Wshadow
                             "$<$<BOOL:${CHUNKMEM_WERROR}>:-Werror>" "-I${PROJECT_SOURCE_DIR}/include"
                             "-I${PROJECT_SOURCE_DIR}/tests" -MD -MF "${program}.d" -MT "${program}"
                             "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/builds.cpp" -o "${program}"
                     DEPENDS "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/builds.cpp" COMMAND_EXPAND_LISTS)
  set(${out} ${${out}} "${program}" PARENT_SCOPE)
endfunction()

set(programs "")
foreach(compiler IN LISTS compilers)
  foreach(flags IN LISTS flag_sets)
    chunkmem_build_of_bits(programs "${compiler}" "${flags}")
  endforeach()
endforeach()
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/equality_builds")

# The same for 64-bit Arm, run under qemu-user: the ctest equality.aarch64 compares a million updates with those of this processor.
find_program(chunkmem_aarch64_compiler NAMES aarch64-linux-gnu-g++)
find_program(chunkmem_qemu NAMES qemu-aarch64)
set(arm_programs "")
if(NOT chunkmem_aarch64_compiler OR NOT chunkmem_qemu OR NOT EXISTS /usr/aarch64-linux-gnu/lib/libstdc++.so.6)
  chunkmem_skipped_test(equality.aarch64 "no aarch64-linux-gnu-g++ with its library in /usr/aarch64-linux-gnu or no qemu-aarch64 was found \
(Debian: apt-get install g++-aarch64-linux-gnu qemu-user)" LABELS figures)
else()
  foreach(flags IN ITEMS "-O2 -ffp-contract=fast" "-O1 -ffp-contract=off")
    chunkmem_build_of_bits(arm_programs "${chunkmem_aarch64_compiler}" "${flags}")
  endforeach()
  if(chunkmem_second_compiler)
    chunkmem_build_of_bits(arm_programs "${chunkmem_second_compiler}" "--target=aarch64-linux-gnu -O2 -ffp-contract=fast")
  endif()
  list(GET programs 1 native) # with optimization
  chunkmem_test(equality.aarch64 LABELS figures TIMEOUT 600
                COMMAND ${CMAKE_COMMAND} "-DPROGRAMS=${native}" "-DARM_PROGRAMS=${arm_programs}" "-DQEMU=${chunkmem_qemu}"
                        -P "${CMAKE_CURRENT_LIST_DIR}/compare_builds.cmake")
endif()

add_custom_target(equality_builds ALL DEPENDS ${programs} ${arm_programs})
chunkmem_makes_figures(equality_builds)
chunkmem_test(equality.builds LABELS figures TIMEOUT 600
              COMMAND ${CMAKE_COMMAND} "-DPROGRAMS=${programs}" -DCOMPILERS=${number_of_compilers} -P "${CMAKE_CURRENT_LIST_DIR}/compare_builds.cmake")
