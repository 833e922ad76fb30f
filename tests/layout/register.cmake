# SPDX-License-Identifier: Apache-2.0
# The tree keeps its rules, and the checker of the rules notices each violation.
set(checker "${PROJECT_SOURCE_DIR}/cmake/check_layout.cmake")
chunkmem_test(layout.tree COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -P "${checker}")
chunkmem_test(layout.words COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}
                                   -P "${PROJECT_SOURCE_DIR}/cmake/check_words.cmake")
chunkmem_test(layout.checkers COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}
                                      -DSCRATCH=${PROJECT_BINARY_DIR}/layout
                                      -P "${CMAKE_CURRENT_LIST_DIR}/check_the_checkers.cmake")

find_program(CHUNKMEM_PYTHON NAMES python3 DOC "Python, for tests of scripts")
mark_as_advanced(CHUNKMEM_PYTHON)
if(CHUNKMEM_PYTHON)
  chunkmem_test(layout.map COMMAND "${CHUNKMEM_PYTHON}" -B "${CMAKE_CURRENT_LIST_DIR}/check_map.py" "${PROJECT_SOURCE_DIR}")
else()
  chunkmem_skipped_test(layout.map "no python3 was found (CHUNKMEM_PYTHON)")
endif()

# The campaign on a GPU: its commands, and what it makes of their answers.
if(CHUNKMEM_PYTHON)
  chunkmem_test(layout.gpu_campaign COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/gpu_campaign.sh" "${PROJECT_SOURCE_DIR}"
                                            "${CHUNKMEM_PYTHON}" "${PROJECT_BINARY_DIR}/gpu_campaign")
else()
  chunkmem_skipped_test(layout.gpu_campaign "no python3 was found (CHUNKMEM_PYTHON)")
endif()
