# Simulations: without bytes, and worth optimising.
set(chunkmem_unsanitized ON)
set(chunkmem_compile_options -O1 "-I${PROJECT_BINARY_DIR}/generated/readme")
# What the README says of plans is compiled where it costs next to nothing.
include("${PROJECT_SOURCE_DIR}/tests/pages/readme_block.cmake")
chunkmem_readme_block("planner::plan_memory(shape" "${PROJECT_BINARY_DIR}/generated/readme/plan_memory.inc")
