# SPDX-License-Identifier: Apache-2.0
# These tests start threads: the thread sanitizer runs them.
set(chunkmem_joint memory)
set(chunkmem_labels threads)
set(chunkmem_processors 2) # alone 7 s, beside a busy neighbour up to 200
