// expect: chooses_victim
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/eviction/eviction_policy.hpp>

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

static_assert(chunkmem::eviction_policy<newcomer>);
