# SPDX-License-Identifier: Apache-2.0
# Times, so not among the tests. The trainers are those of the example.
set(chunkmem_only_bench ON)
include("${PROJECT_SOURCE_DIR}/examples/plain_loops/library.cmake")
set(chunkmem_libraries plain_loops_parts)
