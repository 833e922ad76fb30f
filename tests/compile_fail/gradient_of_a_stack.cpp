// expect: error: static assertion.*name one, as in m.gradient\(weights.slice\(layer\)\)
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

namespace cm = chunkmem;
using manager = cm::manager<cm::backend::host_arena>;

void add_up(manager& m, const cm::stacked<float>& weights)
{
#ifdef CHUNKMEM_COMPILES
  (void)m.gradient(weights.slice(0));
#else
  (void)m.gradient(weights);
#endif
}
