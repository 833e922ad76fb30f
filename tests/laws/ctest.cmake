# SPDX-License-Identifier: Apache-2.0
# Wrong policies, and the laws that name their mistakes. The program counts allocations, and some of its ranks are threads
# that wait for a deadline of two seconds: no sanitizer needs it. It makes a figure.
set(chunkmem_joint managers)
set(chunkmem_labels figures)
set(chunkmem_unsanitized ON)
