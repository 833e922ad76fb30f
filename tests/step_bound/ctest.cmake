# SPDX-License-Identifier: Apache-2.0
# The bound of a step's time lies beside the benches that compare with it.
set(chunkmem_unsanitized ON) # durations and simulations are numbers
set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/bench" -O1 -D_GLIBCXX_ASSERTIONS)
