# SPDX-License-Identifier: Apache-2.0
# Integer programs are solved by GLPK: without it these tests are skipped.
include("${PROJECT_SOURCE_DIR}/cmake/glpk.cmake")
# The traces and the program are those of the bench.
set(chunkmem_unsanitized ON) # plans are numbers
set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/bench" -O1)
