// expect: error: static assertion.*name one, as in m.acquire\(weights.slice\(layer\), ...\)
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

namespace cm = chunkmem;
using manager = cm::manager<cm::backend::host_arena>;

void read(manager& m, const cm::stacked<float>& weights)
{
#ifdef CHUNKMEM_COMPILES
  (void)m.acquire(weights.slice(0), cm::access::read);
#else
  (void)m.acquire(weights, cm::access::read);
#endif
}
