# SPDX-License-Identifier: Apache-2.0
# The linear program comes from the solver GLPK: without it these figures are skipped.
set(chunkmem_only_bench ON)
include("${PROJECT_SOURCE_DIR}/cmake/glpk.cmake")
# The traces are those of the tests.
set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/tests")
