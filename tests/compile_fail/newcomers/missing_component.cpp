// SPDX-License-Identifier: Apache-2.0
// remedy: link chunkmem::mpi
#ifdef CHUNKMEM_COMPILES
#include <chunkmem/collective/local_threads.hpp>
#else
#include <chunkmem/collective/mpi.hpp>
#endif
