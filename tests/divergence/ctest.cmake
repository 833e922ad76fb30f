# SPDX-License-Identifier: Apache-2.0
# Programs that leave their records run under sanitizers in tests/differential.
set(chunkmem_unsanitized ON)
set(chunkmem_compile_options -O1) # they run longer than they compile
