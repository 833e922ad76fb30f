# SPDX-License-Identifier: Apache-2.0
# Part checkpointed: training with activations that are kept, swapped and computed again. Its backends start threads: the thread
# sanitizer runs it. It makes a figure.
set(chunkmem_labels threads figures)
chunkmem_part(checkpointed "checkpointed|checkpointed_.*")

# The others plan.
set(chunkmem_labels "")
