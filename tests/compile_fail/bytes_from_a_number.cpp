// expect: conver(t|sion)
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/bytes.hpp>

#ifdef CHUNKMEM_COMPILES
chunkmem::bytes size = chunkmem::bytes{4096};
#else
chunkmem::bytes size = 4096;
#endif
