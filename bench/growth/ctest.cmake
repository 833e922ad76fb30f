# SPDX-License-Identifier: Apache-2.0
# Instructions under callgrind at up to a million chunks: minutes, so not among the tests.
set(chunkmem_only_bench ON)
