# SPDX-License-Identifier: Apache-2.0
# These tests start threads: the thread sanitizer runs them.
set(chunkmem_labels threads)
