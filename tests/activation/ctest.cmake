# SPDX-License-Identifier: Apache-2.0
# Part checkpointed: training with activations that are kept, swapped, recomputed and sampled. Its backends start
# threads, so the thread sanitizer runs it. Norms of samples are in checkpoints. It makes a figure.
set(chunkmem_joint saves)
set(chunkmem_labels threads figures)
set(chunkmem_why_not "${chunkmem_why_no_checkpoint}")
set(chunkmem_libraries chunkmem::checkpoint)
chunkmem_part(checkpointed "checkpointed|checkpointed_.*|sampled")

# The other tests plan. Plans are numbers, and an index past an end is caught here; sanitizers run those that search
# little or not at all.
set(chunkmem_joint "")
set(chunkmem_labels "")
set(chunkmem_why_not "")
set(chunkmem_libraries "")
if(NOT CHUNKMEM_SANITIZE)
  set(chunkmem_compile_options -D_GLIBCXX_ASSERTIONS)
endif()
set(chunkmem_unsanitized ON)
set(chunkmem_sanitized_files "(activation_plan|chain_timeline|executed_plans|layer_chain|convnet_chain|row_choice)_test[.]cpp")

# Part sampled_on_stream: sampled inputs whose kernels run on streams; its fake GPU is not for sanitizers. It makes a figure.
set(chunkmem_labels figures)
chunkmem_part(sampled_on_stream "sampled_on_stream")
set(chunkmem_labels "")
