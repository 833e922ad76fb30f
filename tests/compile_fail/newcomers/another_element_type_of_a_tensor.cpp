// remedy: (no known conversion|argument types are: ).*tensor<float>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

void train(chunkmem::backend::host_arena& memory)
{
  chunkmem::manager<chunkmem::backend::host_arena> m{memory, {.chunk_bytes = chunkmem::bytes{4096}}};
#ifdef CHUNKMEM_COMPILES
  const auto w = m.add<float>({4, 4}, chunkmem::role::parameter);
  (void)m.acquire(w, chunkmem::access::read);
#else
  const auto w = m.add<float>({4, 4}, chunkmem::role::parameter);
  (void)m.acquire<chunkmem::bf16>(w, chunkmem::access::read);
#endif
}
