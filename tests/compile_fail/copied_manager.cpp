// expect: pass a manager by reference
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

void train(chunkmem::backend::host_arena& memory)
{
  chunkmem::manager<chunkmem::backend::host_arena> m{memory, {.chunk_bytes = chunkmem::bytes{4096}}};
#ifdef CHUNKMEM_COMPILES
  auto& again = m;
  (void)again;
#else
  auto again = m;
#endif
}
