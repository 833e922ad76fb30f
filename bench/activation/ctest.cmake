# SPDX-License-Identifier: Apache-2.0
# Plans on virtual clocks are the same on every machine, so a test compares them with their bounds. Without an argument
# the program also measures the seconds of planning, which takes longer.
set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/tests")
chunkmem_test(activation.plans LABELS figures TIMEOUT 900 COMMAND planners_bench brief)
set_tests_properties(activation.plans PROPERTIES COST 300) # it is named late, and starts early

# Compared with searches that take minutes.
chunkmem_test(activation.chains LABELS slow figures TIMEOUT 3600
              COMMAND chains_bench "${CMAKE_CURRENT_LIST_DIR}/measured")
