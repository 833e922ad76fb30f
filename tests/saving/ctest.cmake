# SPDX-License-Identifier: Apache-2.0
# The queue in virtual time and the bound lie beside the bench that uses them.
set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/bench" -O1 -D_GLIBCXX_ASSERTIONS)
