# SPDX-License-Identifier: Apache-2.0
# Part sweeps: every fault in a whole training. It has an operator new and a pthread_create of its own, so it is a program of its own; and
# it saves checkpoints. Some make figures.
set(chunkmem_labels figures)
set(chunkmem_why_not "${chunkmem_why_no_checkpoint}")
set(chunkmem_libraries chunkmem::checkpoint ${CMAKE_DL_LIBS})
chunkmem_part(sweeps "background_save|bad_clock|half_step|plan_search|single_calls|whole_training")

# The others start threads: the thread sanitizer runs them.
set(chunkmem_labels threads)
set(chunkmem_why_not "")
set(chunkmem_libraries "")
set(chunkmem_joint numbers)
