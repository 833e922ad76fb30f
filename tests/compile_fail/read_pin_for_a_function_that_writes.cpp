// expect: invalid user-defined conversion from .*const float|no matching function for call to 'scale'
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

namespace cm = chunkmem;
using manager = cm::manager<cm::backend::host_arena>;

void scale(float* numbers, int count);

void scale(manager& m, cm::tensor<float> w)
{
#ifdef CHUNKMEM_COMPILES
  const auto pin = m.acquire(w, cm::access::read_write);
#else
  const auto pin = m.acquire(w, cm::access::read);
#endif
  scale(pin, 4);
}
