# SPDX-License-Identifier: Apache-2.0
# Trainings, so not among the tests. The model and its kernels are those of the example.
set(chunkmem_only_bench ON)
include("${PROJECT_SOURCE_DIR}/bench/gpt_model.cmake")
if(TARGET chunkmem::checkpoint)
  chunkmem_gpt_model(fine_tuning_model)
  list(APPEND chunkmem_libraries chunkmem::checkpoint)
  set(chunkmem_compile_options "-DCHUNKMEM_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
else()
  set(chunkmem_why_not "no nlohmann/json.hpp or xxhash.h (Debian: apt-get install nlohmann-json3-dev libxxhash-dev)")
endif()
