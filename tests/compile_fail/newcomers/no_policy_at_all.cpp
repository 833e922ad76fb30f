// SPDX-License-Identifier: Apache-2.0
// remedy: give it a policy_kind and a name, or remove it
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

#include <string_view>

struct my_eviction {};

#ifdef CHUNKMEM_COMPILES
using manager_type = chunkmem::manager<chunkmem::backend::host_arena>;
#else
using manager_type = chunkmem::manager<chunkmem::backend::host_arena, my_eviction>;
#endif

void train(chunkmem::backend::host_arena& memory)
{
  manager_type m{memory, {.chunk_bytes = chunkmem::bytes{4096}}};
}
