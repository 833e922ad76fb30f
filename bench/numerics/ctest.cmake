# SPDX-License-Identifier: Apache-2.0
# Trainings, so not among the tests. The model and its kernels are those of the example.
set(chunkmem_only_bench ON)
include("${PROJECT_SOURCE_DIR}/bench/gpt_model.cmake")
chunkmem_gpt_model(numerics_model)
