# SPDX-License-Identifier: Apache-2.0
# Part checkpointed: training with activations that are kept, swapped and computed again. Its backends start threads: the thread
# sanitizer runs it. It makes a figure.
set(chunkmem_labels threads figures)
chunkmem_part(checkpointed "checkpointed|checkpointed_.*")

# The others plan.
set(chunkmem_labels "")
if(CHUNKMEM_SANITIZE)
  set(chunkmem_compile_options -O1) # they search, which takes longer than to compile them
endif()
