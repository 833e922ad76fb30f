// expect: the type of a policy value is not among the policies of this manager
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
