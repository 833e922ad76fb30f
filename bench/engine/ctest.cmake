# SPDX-License-Identifier: Apache-2.0
# Instructions, not seconds: the same on every machine, so a test may compare them with their bound. The figure is the
# worst of three compilations: this compiler at -O2 and at -O3, and the other one of g++ and clang at -O2 where it is
# installed. Without CHUNKMEM_BUILD_BENCH only the first one is counted, and no figure is written.
set(others "")
if(CHUNKMEM_BUILD_BENCH)
  chunkmem_program(acquire_bench_O3 "${CMAKE_CURRENT_LIST_DIR}/acquire_bench.cpp")
  target_compile_options(acquire_bench_O3 PRIVATE -O3)
  list(APPEND others "$<TARGET_FILE:acquire_bench_O3>")

  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(names g++)
  else()
    set(names clang++-16 clang++-19 clang++-18 clang++-17 clang++) # clang++ may be older than we support
  endif()
  find_program(CHUNKMEM_OTHER_COMPILER NAMES ${names} DOC "Compiler that the instructions of an access are counted with as well")
  mark_as_advanced(CHUNKMEM_OTHER_COMPILER)
  if(CHUNKMEM_OTHER_COMPILER)
    set(other "${PROJECT_BINARY_DIR}/generated/acquire_bench_other")
    set(source "${CMAKE_CURRENT_LIST_DIR}/acquire_bench.cpp")
    add_custom_command(OUTPUT "${other}" DEPENDS "${source}" DEPFILE "${other}.d" VERBATIM
                       COMMAND "${CHUNKMEM_OTHER_COMPILER}" -std=c++20 -O2 -I "${PROJECT_SOURCE_DIR}/include" -pthread -MD -MF "${other}.d"
                               -MT "${other}" "${source}" -o "${other}")
    add_custom_target(acquire_bench_other ALL DEPENDS "${other}")
    list(APPEND others "${other}")
  endif()
endif()

chunkmem_test(engine.instructions LABELS figures TIMEOUT 900 COMMAND acquire_bench ${others})
set_tests_properties(engine.instructions PROPERTIES COST 900) # long: it starts early
