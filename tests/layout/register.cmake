# SPDX-License-Identifier: Apache-2.0
# The tree keeps its rules. The checkers of the rules notice each violation.
set(check "${CHUNKMEM_PYTHON}" -B)
chunkmem_test(layout.tree COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/check_layout.py" "${PROJECT_SOURCE_DIR}")
chunkmem_test(layout.words COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/check_words.py" "${PROJECT_SOURCE_DIR}")
chunkmem_test(layout.map COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/check_map.py" "${PROJECT_SOURCE_DIR}")
chunkmem_test(layout.uses COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/check_uses.py" "${PROJECT_SOURCE_DIR}")
chunkmem_test(layout.bytes_of_ranks
              COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/check_bytes_of_ranks.py" "${PROJECT_SOURCE_DIR}")
chunkmem_test(layout.workflow COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/check_workflow.py" "${PROJECT_SOURCE_DIR}")
chunkmem_test(layout.packages COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/check_packages.py" "${PROJECT_SOURCE_DIR}")
chunkmem_test(layout.skips COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/check_skips.py" "${PROJECT_SOURCE_DIR}")
chunkmem_test(format COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/check_format.py" "${PROJECT_SOURCE_DIR}")
chunkmem_test(layout.checkers COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/check_the_checkers.py")
chunkmem_test(layout.counts COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/check_the_counts.py")
chunkmem_test(layout.mutants COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/check_mutants.py" "${CMAKE_CXX_COMPILER}")

# The campaign on a GPU: its commands, what it makes of their answers, and how the first hour ends.
chunkmem_test(layout.gpu_campaign COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/gpu_campaign.sh" "${PROJECT_SOURCE_DIR}"
                                          "${CHUNKMEM_PYTHON}" "${PROJECT_BINARY_DIR}/gpu_campaign")
chunkmem_test(layout.gpu_first COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/gpu_first.sh" "${PROJECT_SOURCE_DIR}"
                                       "${CHUNKMEM_PYTHON}" "${PROJECT_BINARY_DIR}/gpu_first")
