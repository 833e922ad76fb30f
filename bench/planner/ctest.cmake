# SPDX-License-Identifier: Apache-2.0
# Minutes of simulation, so not among the tests; machines are JSON.
set(chunkmem_only_bench ON)
set(chunkmem_compile_options "-DCHUNKMEM_MACHINES=\"${PROJECT_SOURCE_DIR}/examples/max_model/machines\"")
if(TARGET chunkmem::json)
  set(chunkmem_libraries chunkmem::json)
else()
  set(chunkmem_why_not "${chunkmem_why_no_json}")
endif()
