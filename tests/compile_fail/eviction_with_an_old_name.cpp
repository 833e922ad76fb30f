// expect: border\(now\) of an eviction policy has the name lease_limit\(now\)
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/chunk_table.hpp>

#include <chunkmem/eviction/evictions.hpp>

#include <cstdint>

#ifdef CHUNKMEM_COMPILES
#define LIMIT lease_limit
#else
#define LIMIT border
#endif

struct below_leases : chunkmem::eviction::lru {
  [[nodiscard]] bool gives_up(const chunkmem::eviction::candidate&) const noexcept { return false; }
  [[nodiscard]] std::uint32_t LIMIT(chunkmem::access_index) const noexcept { return 7; }
};

chunkmem::candidate_set<below_leases> candidates{{}};
