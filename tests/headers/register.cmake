# Every header alone with each compiler at hand, and what the umbrella costs.
find_program(chunkmem_second_compiler NAMES clang++-16 clang++-19 clang++-18 clang++-17)
set(compilers "${CMAKE_CXX_COMPILER}")
if(chunkmem_second_compiler AND NOT chunkmem_second_compiler STREQUAL CMAKE_CXX_COMPILER)
  list(APPEND compilers "${chunkmem_second_compiler}")
  chunkmem_summarize("headers with clang" "on " "${chunkmem_second_compiler}")
else()
  chunkmem_summarize("headers with clang" "off" "no clang++ 16 to 19 beside ${CMAKE_CXX_COMPILER}")
endif()
set(components "")
if(TARGET chunkmem::cuda)
  list(APPEND components "cuda=${chunkmem_cuda_include}")
endif()
if(TARGET chunkmem::thrust)
  list(APPEND components "thrust=${CHUNKMEM_THRUST_INCLUDE}")
endif()
chunkmem_test(headers TIMEOUT 900
              COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/check.sh" "${PROJECT_SOURCE_DIR}" ${components} ${compilers})
set_tests_properties(headers PROPERTIES COST 1000) # the longest starts first

chunkmem_test(core.include_preprocessed_lines LABELS figures
              COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DCOMPILER=${CMAKE_CXX_COMPILER}
                      -P "${CMAKE_CURRENT_LIST_DIR}/preprocessed_lines.cmake")
set_tests_properties(core.include_preprocessed_lines PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED: ")
