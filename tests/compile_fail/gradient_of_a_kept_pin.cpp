// expect: error: static assertion.*a gradient ends the pin of its weight: write m.gradient\(std::move\(pin\)\)
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

#include <utility>

namespace cm = chunkmem;
using manager = cm::manager<cm::backend::host_arena>;

void add_up(manager& m, cm::tensor<float> weight)
{
  auto pin = m.acquire(weight, cm::access::read);
#ifdef CHUNKMEM_COMPILES
  (void)m.gradient(std::move(pin));
#else
  (void)m.gradient(pin);
#endif
}
