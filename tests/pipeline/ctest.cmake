# SPDX-License-Identifier: Apache-2.0
# Part stages: stages that are threads. The thread sanitizer runs it.
set(chunkmem_joint saves)
set(chunkmem_labels threads)
chunkmem_part(stages "stage_runner|managed_stages|nccl_stages|next_gradients|sharded_stages|weight_versions|network_in_stage")
# Part files: checkpoints of stages. Part stages has its sanitizers. It makes a figure.
set(chunkmem_labels figures)
set(chunkmem_unsanitized ON)
set(chunkmem_why_not "${chunkmem_why_no_checkpoint}")
set(chunkmem_libraries chunkmem::checkpoint)
chunkmem_part(files "load_from_stages|stage_faults|stage_files")
set(chunkmem_joint "")
set(chunkmem_labels "")
set(chunkmem_why_not "")
set(chunkmem_libraries "")

# The others plan. Schedules are numbers, and whoever indexes past an end is caught here; sanitizers have those that do not search.
if(NOT CHUNKMEM_SANITIZE)
  set(chunkmem_compile_options -D_GLIBCXX_ASSERTIONS)
endif()
set(chunkmem_sanitized_files "(find_fault|pipeline_timeline|replay_memory|schedule_text)_test[.]cpp")
