// SPDX-License-Identifier: Apache-2.0
// remedy: use one of the kinds in core/policy.hpp that this class accepts
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/ownership/ownerships.hpp>

#ifdef CHUNKMEM_COMPILES
using manager_type = chunkmem::manager<chunkmem::backend::host_arena>;
#else
using manager_type = chunkmem::manager<chunkmem::backend::host_arena, chunkmem::ownership::sharded>;
#endif

void train(chunkmem::backend::host_arena& memory)
{
  manager_type m{memory, {.chunk_bytes = chunkmem::bytes{4096}}};
}
