# SPDX-License-Identifier: Apache-2.0
# The bounds come from the solver GLPK: without it these figures are skipped.
set(chunkmem_only_bench ON)
include("${PROJECT_SOURCE_DIR}/cmake/glpk.cmake")
