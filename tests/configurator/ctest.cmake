# SPDX-License-Identifier: Apache-2.0
# Searches without bytes, and worth optimising.
set(chunkmem_unsanitized ON)
set(chunkmem_compile_options -O1)
