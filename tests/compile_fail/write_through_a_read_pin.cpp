// expect: 'float&?' to (value of type )?'const float'|.float&. to .const float. discards qualifiers
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

namespace cm = chunkmem;
using manager = cm::manager<cm::backend::host_arena>;

void scale(manager& m, cm::tensor<float> w)
{
#ifdef CHUNKMEM_COMPILES
  for (float& x : m.acquire(w, cm::access::read_write).span()) x *= 2;
#else
  for (float& x : m.acquire(w, cm::access::read).span()) x *= 2;
#endif
}
