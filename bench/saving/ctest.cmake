# SPDX-License-Identifier: Apache-2.0
# A minute of simulation, so not among the tests; machines are JSON.
set(chunkmem_only_bench ON)
set(chunkmem_compile_options "-DCHUNKMEM_MACHINES=\"${PROJECT_SOURCE_DIR}/examples/max_model/machines\"")
if(TARGET chunkmem::json AND TARGET chunkmem::checkpoint)
  set(chunkmem_libraries chunkmem::json chunkmem::checkpoint)
else()
  set(chunkmem_why_not "${chunkmem_why_no_json}${chunkmem_why_no_checkpoint}")
endif()
