# SPDX-License-Identifier: Apache-2.0
# The searches of other engines are those of the example that compares them.
set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/examples/max_model")
# Waste is arithmetic, the same on every machine: a test compares it with its bounds. Without an argument the program
# also counts the cost of searches, which takes longer.
chunkmem_test(layout.waste LABELS figures TIMEOUT 900 COMMAND chunk_waste_bench brief)
set_tests_properties(layout.waste PROPERTIES COST 300) # it is named late, and starts early
