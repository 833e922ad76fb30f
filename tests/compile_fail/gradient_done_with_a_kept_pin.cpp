// expect: error: static assertion.*gradient_done ends the pin of the gradient: write m.gradient_done\(std::move\(g\)\)
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

#include <utility>

namespace cm = chunkmem;
using manager = cm::manager<cm::backend::host_arena>;

void add_up(manager& m, cm::tensor<float> weight)
{
  auto g = m.gradient(weight);
#ifdef CHUNKMEM_COMPILES
  m.gradient_done(std::move(g));
#else
  m.gradient_done(g);
#endif
}
