# SPDX-License-Identifier: Apache-2.0
# These tests start threads: the thread sanitizer runs them. Some make figures.
set(chunkmem_joint ranks)
set(chunkmem_labels threads figures)
