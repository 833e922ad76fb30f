// SPDX-License-Identifier: Apache-2.0
// remedy: add it to the arguments of manager
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/manager.hpp>

void train(chunkmem::backend::host_arena& memory)
{
  const chunkmem::manager_options options{.chunk_bytes = chunkmem::bytes{4096}};
#ifdef CHUNKMEM_COMPILES
  chunkmem::manager<chunkmem::backend::host_arena, chunkmem::eviction::lru> m{memory, options,
                                                                              chunkmem::eviction::lru{}};
#else
  chunkmem::manager<chunkmem::backend::host_arena> m{memory, options, chunkmem::eviction::lru{}};
#endif
}
