// expect: error: static assertion.*name each of them, as in m.name\(weights.slice\(layer\),
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

namespace cm = chunkmem;
using manager = cm::manager<cm::backend::host_arena>;

void name(manager& m, const cm::stacked<float>& weights)
{
#ifdef CHUNKMEM_COMPILES
  m.name(weights.slice(0), "layer.0");
#else
  m.name(weights, "layer");
#endif
}
