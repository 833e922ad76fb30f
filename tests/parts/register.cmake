# SPDX-License-Identifier: Apache-2.0
# Missing or incomplete parts of a machine break neither a configuration nor the demo.
foreach(name IN ITEMS hidden half_present)
  chunkmem_test(parts.${name} TIMEOUT 900
                COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DBUILD=${PROJECT_BINARY_DIR}
                        -DGENERATOR=${CMAKE_GENERATOR} -DCOMPILER=${CMAKE_CXX_COMPILER}
                        -P "${CMAKE_CURRENT_LIST_DIR}/${name}.cmake")
  set_tests_properties(parts.${name} PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED: ")
endforeach()
chunkmem_test(parts.hidden.slow LABELS slow TIMEOUT 900
              COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DBUILD=${PROJECT_BINARY_DIR}
                      -DGENERATOR=${CMAKE_GENERATOR} -DCOMPILER=${CMAKE_CXX_COMPILER} -DWITH_BUILD=ON
                      -P "${CMAKE_CURRENT_LIST_DIR}/hidden.cmake")
set_tests_properties(parts.hidden.slow PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED: " PROCESSORS 2)
# Scripts that install packages, end processes or make the site, where apt, roots and Sphinx are played.
foreach(name IN ITEMS bootstrap bare_roots site)
  chunkmem_test(parts.${name} TIMEOUT 60 COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/${name}.sh" "${PROJECT_SOURCE_DIR}"
                                                 "${PROJECT_BINARY_DIR}/parts_${name}")
  set_tests_properties(parts.${name} PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED: ")
endforeach()
chunkmem_test(parts.not_run TIMEOUT 60 COMMAND "${CHUNKMEM_PYTHON}" -B "${CMAKE_CURRENT_LIST_DIR}/not_run.py")
# Test programs report failures by their status.
set(program test_core)
if(chunkmem_are_joined)
  set(program test_memory)
endif()
chunkmem_test(parts.status TIMEOUT 60 COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/status.sh" $<TARGET_FILE:${program}>)
