# SPDX-License-Identifier: Apache-2.0
# Some of these tests make figures.
set(chunkmem_labels figures)
# Oracles that try everything: worth optimising even under the address sanitizer.
set(chunkmem_compile_options -O1)
