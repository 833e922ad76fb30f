// expect: no matching (function for call to .*access::access|conversion for C-style cast from 'int' to 'cm::access')
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

namespace cm = chunkmem;
using manager = cm::manager<cm::backend::host_arena>;

void use(manager& m, cm::tensor<float> w)
{
#ifdef CHUNKMEM_COMPILES
  (void)m.acquire(w, cm::access{static_cast<cm::access_mode>(1)});
#else
  (void)m.acquire(w, (cm::access)7);
#endif
}
