# SPDX-License-Identifier: Apache-2.0
# They start threads, but none that tests/equality and tests/optimizer do not start too: not under the thread sanitizer. What they run
# has the address sanitizer in tests/equality, tests/optimizer and the mixed trainings of tests/backend_thrust. Some make figures.
set(chunkmem_labels figures)
set(chunkmem_compile_options -O1) # they run longer than they compile
set(chunkmem_unsanitized ON)
