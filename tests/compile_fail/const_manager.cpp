// expect: error: static assertion.*an acquire may move chunks.*take the manager by a reference without const
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

namespace cm = chunkmem;
using manager = cm::manager<cm::backend::host_arena>;

#ifdef CHUNKMEM_COMPILES
void read(manager& m, cm::tensor<float> weight)
#else
void read(const manager& m, cm::tensor<float> weight)
#endif
{
  (void)m.acquire(weight, cm::access::read);
}
