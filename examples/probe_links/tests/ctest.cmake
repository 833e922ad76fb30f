# SPDX-License-Identifier: Apache-2.0
set(chunkmem_labels mpi)
set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/examples/probe_links")
set(chunkmem_libraries CLI11::CLI11 chunkmem::json chunkmem::mpi)
