# SPDX-License-Identifier: Apache-2.0
# Simulations: without bytes, and worth optimising.
set(chunkmem_unsanitized ON)
set(chunkmem_compile_options -O1 "-I${PROJECT_BINARY_DIR}/generated/blocks")
# The statements of docs/training.md on plans are compiled where that costs almost nothing.
include("${PROJECT_SOURCE_DIR}/tests/pages/page_block.cmake")
chunkmem_page_block(docs/training.md "planner::plan_memory(shape" "${PROJECT_BINARY_DIR}/generated/blocks/plan_memory.inc")
