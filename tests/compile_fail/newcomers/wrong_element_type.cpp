// SPDX-License-Identifier: Apache-2.0
// remedy: tensors are of float, bf16, fp16, std::int32_t, std::int64_t or std::uint8_t
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

void train(chunkmem::backend::host_arena& memory)
{
  chunkmem::manager<chunkmem::backend::host_arena> m{memory, {.chunk_bytes = chunkmem::bytes{4096}}};
#ifdef CHUNKMEM_COMPILES
  (void)m.add<float>({4, 4}, chunkmem::role::parameter);
#else
  (void)m.add<double>({4, 4}, chunkmem::role::parameter);
#endif
}
