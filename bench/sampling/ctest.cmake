# SPDX-License-Identifier: Apache-2.0
# Two minutes of estimates, so not among the tests: those have fewer.
set(chunkmem_only_bench ON)
set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/tests")
