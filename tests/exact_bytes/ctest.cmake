# SPDX-License-Identifier: Apache-2.0
# Plans and their trainings. One figure.
set(chunkmem_labels figures)
set(chunkmem_unsanitized ON)
set(chunkmem_compile_options -O1)
