# SPDX-License-Identifier: Apache-2.0
set(chunkmem_joint memory)
