# SPDX-License-Identifier: Apache-2.0
# These tests start threads: the thread sanitizer runs them. One makes a figure.
set(chunkmem_joint managers)
set(chunkmem_labels threads figures)
