# SPDX-License-Identifier: Apache-2.0
# The trainer with malloc, its kernels and its text, which the example and the bench share. Kernels are the same object
# code for both trainers, at -O2 as a user would compile them; products and sums are not contracted, so that no -march
# changes a bit.
include_guard(GLOBAL)
set(plain_loops_folder "${CMAKE_CURRENT_LIST_DIR}")
add_library(plain_loops_parts OBJECT EXCLUDE_FROM_ALL "${plain_loops_folder}/kernels.cpp" "${plain_loops_folder}/plain_trainer.cpp"
            "${plain_loops_folder}/text.cpp")
chunkmem_flags(plain_loops_parts)
target_compile_options(plain_loops_parts PRIVATE -O2 -ffp-contract=off "-DCHUNKMEM_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
target_include_directories(plain_loops_parts PUBLIC "${plain_loops_folder}")
