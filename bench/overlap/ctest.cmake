# SPDX-License-Identifier: Apache-2.0
# Times, so not among the tests. The model and its kernels are those of the example, the arena is that of the tests.
set(chunkmem_only_bench ON)
include("${PROJECT_SOURCE_DIR}/bench/gpt_model.cmake")
chunkmem_gpt_model(overlap_model)
set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/tests")
