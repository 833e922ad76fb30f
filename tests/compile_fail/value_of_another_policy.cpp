// expect: a policy value was given whose type this manager was not named with
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/manager.hpp>

using chosen = chunkmem::manager<chunkmem::backend::simulated, chunkmem::eviction::lru>;

void make(chunkmem::backend::simulated& memory)
{
#ifdef CHUNKMEM_COMPILES
  const chosen m{memory, {}, chunkmem::eviction::lru{}};
#else
  const chosen m{memory, {}, chunkmem::eviction::belady{}};
#endif
}
