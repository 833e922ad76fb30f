# SPDX-License-Identifier: Apache-2.0
# Every header alone, and what the umbrella costs. Where Clang is here, it shows that in one unit for each component. Under the
# label slow each compiler has a unit for each header.
find_program(chunkmem_second_compiler NAMES clang++-16 clang++-19 clang++-18 clang++-17)
set(components "")
if(TARGET chunkmem::cuda)
  list(APPEND components "cuda=${chunkmem_cuda_include}")
endif()
if(TARGET chunkmem::checkpoint)
  list(APPEND components "checkpoint=${CHUNKMEM_JSON_INCLUDE}")
endif()
if(TARGET chunkmem::json)
  list(APPEND components "json=${CHUNKMEM_JSON_INCLUDE}")
endif()
if(TARGET chunkmem::dlpack)
  list(APPEND components "dlpack=${CHUNKMEM_DLPACK_INCLUDE}")
endif()
if(TARGET chunkmem::mpi)
  foreach(folder IN LISTS chunkmem_mpi_include)
    list(APPEND components "mpi=${folder}")
  endforeach()
endif()
if(TARGET chunkmem::thrust)
  list(APPEND components "thrust=${CHUNKMEM_THRUST_INCLUDE}")
endif()
set(check "${CHUNKMEM_PYTHON}" -B "${CMAKE_CURRENT_LIST_DIR}/check.py" ${components})
set(quickest "${CMAKE_CXX_COMPILER}")
if(chunkmem_second_compiler)
  set(quickest "${chunkmem_second_compiler}")
endif()
chunkmem_test(headers TIMEOUT 900 COMMAND ${check} "${quickest}")
chunkmem_test(headers.slow TIMEOUT 1800 LABELS slow COMMAND ${check} --each "${CMAKE_CXX_COMPILER}")
if(chunkmem_second_compiler AND NOT chunkmem_second_compiler STREQUAL CMAKE_CXX_COMPILER)
  chunkmem_test(headers.slow.clang TIMEOUT 1800 LABELS slow COMMAND ${check} --each "${chunkmem_second_compiler}")
  chunkmem_summarize("headers with clang" "on " "${chunkmem_second_compiler}")
else()
  chunkmem_skipped_test(headers.slow.clang "no clang++ 16 to 19 was found beside ${CMAKE_CXX_COMPILER}" LABELS slow)
  chunkmem_summarize("headers with clang" "off" "no clang++ 16 to 19 beside ${CMAKE_CXX_COMPILER}")
endif()
set_tests_properties(headers PROPERTIES COST 1000) # the longest starts first

# With the headers of older CUDA toolkits, which come from PyPI.
set(older "${CHUNKMEM_PYTHON}" -B "${CMAKE_CURRENT_LIST_DIR}/older_cuda.py" "toolkit=${chunkmem_cuda_include}"
    "nccl=$<$<TARGET_EXISTS:chunkmem::nccl>:${CHUNKMEM_NCCL_INCLUDE}>" "clang=$<$<BOOL:${chunkmem_second_compiler}>:${chunkmem_second_compiler}>")
set(with "${CMAKE_CXX_COMPILER}" "${PROJECT_BINARY_DIR}/older_cuda")
chunkmem_test(headers.older_cuda TIMEOUT 900 COMMAND ${older} ${with})
chunkmem_test(headers.older_cuda.slow TIMEOUT 1800 LABELS slow COMMAND ${older} --all ${with})
set_tests_properties(headers.older_cuda headers.older_cuda.slow PROPERTIES RESOURCE_LOCK older_cuda)
chunkmem_test(headers.checker COMMAND "${CHUNKMEM_PYTHON}" -B "${CMAKE_CURRENT_LIST_DIR}/check_the_checker.py" "${CMAKE_CXX_COMPILER}"
                                      "${quickest}")
# A function that is not inline, in whatever header, would be defined by every unit of a program.
chunkmem_test(headers.one_unit COMMAND "${CHUNKMEM_PYTHON}" -B "${CMAKE_CURRENT_LIST_DIR}/check_symbols.py" ${CMAKE_NM}
                                       $<TARGET_OBJECTS:chunkmem_one_unit>)

chunkmem_test(core.include_preprocessed_lines LABELS figures
              COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DCOMPILER=${CMAKE_CXX_COMPILER}
                      -P "${CMAKE_CURRENT_LIST_DIR}/preprocessed_lines.cmake")
