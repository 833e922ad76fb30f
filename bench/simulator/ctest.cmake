# SPDX-License-Identifier: Apache-2.0
# Times, so not among the tests. The throttled arena is that of the tests.
set(chunkmem_only_bench ON)
set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/tests")
