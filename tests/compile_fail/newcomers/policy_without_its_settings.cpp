// SPDX-License-Identifier: Apache-2.0
// remedy: a policy of this manager needs settings: pass a value of this policy to the constructor
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

#include <string_view>

struct strict_placement {
  using policy_kind = chunkmem::placement_kind;
  static constexpr std::string_view name = "strict_placement";
  explicit strict_placement(int) {}
  chunkmem::tier preferred_tier(chunkmem::role, chunkmem::bytes) const { return chunkmem::tier::host; }
};

void train(chunkmem::backend::host_arena& memory)
{
  const chunkmem::manager_options options{.chunk_bytes = chunkmem::bytes{4096}};
#ifdef CHUNKMEM_COMPILES
  chunkmem::manager<chunkmem::backend::host_arena, strict_placement> m{memory, options, strict_placement{3}};
#else
  chunkmem::manager<chunkmem::backend::host_arena, strict_placement> m{memory, options};
#endif
}
