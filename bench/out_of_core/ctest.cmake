# SPDX-License-Identifier: Apache-2.0
# Minutes of threads that sleep, so not among the tests. The throttled arena and ranks are those of the tests.
set(chunkmem_only_bench ON)
set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/tests")
