// SPDX-License-Identifier: Apache-2.0
// remedy: two policies of one kind: keep one of them
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/manager.hpp>

using arena = chunkmem::backend::host_arena;
#ifdef CHUNKMEM_COMPILES
using manager_type = chunkmem::manager<arena, chunkmem::eviction::lru>;
#else
using manager_type = chunkmem::manager<arena, chunkmem::eviction::lru, chunkmem::eviction::fifo>;
#endif

void train(arena& memory)
{
  manager_type m{memory, {.chunk_bytes = chunkmem::bytes{4096}}};
}
