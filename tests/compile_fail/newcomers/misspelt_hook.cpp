// SPDX-License-Identifier: Apache-2.0
// remedy: eviction policy lacks a hook, or has it with another signature: .*victim.access_index. noexcept -> chunk_id
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

#include <cstdint>
#include <string_view>

#ifdef CHUNKMEM_COMPILES
#define VICTIM victim
#else
#define VICTIM victm
#endif

struct newcomer {
  using policy_kind = chunkmem::eviction_kind;
  static constexpr std::string_view name = "newcomer";
  void reset(std::uint32_t) {}
  void on_profile(const chunkmem::access_record&) {}
  void enter(const chunkmem::eviction::candidate&) noexcept {}
  void leave(const chunkmem::eviction::candidate&) noexcept {}
  chunkmem::chunk_id VICTIM(chunkmem::access_index) noexcept { return chunkmem::chunk_id::none; }
};

void train(chunkmem::backend::host_arena& memory)
{
  chunkmem::manager<chunkmem::backend::host_arena, newcomer> m{memory, {.chunk_bytes = chunkmem::bytes{4096}}};
}
