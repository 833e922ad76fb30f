// expect: error: static assertion.*an acquire says how the bytes are used: add access::read, access::read_write
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

namespace cm = chunkmem;
using manager = cm::manager<cm::backend::host_arena>;

void read(manager& m, cm::tensor<float> weight)
{
#ifdef CHUNKMEM_COMPILES
  (void)m.acquire(weight, cm::access::read);
#else
  (void)m.acquire(weight);
#endif
}
