// expect: a policy of an unknown kind: use one of the kinds
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/manager.hpp>

#include <string_view>

struct weather_kind {};
struct sunshine {
  using policy_kind = weather_kind;
  static constexpr std::string_view name = "sunshine";
};

#ifdef CHUNKMEM_COMPILES
using chosen = chunkmem::manager<chunkmem::backend::simulated, chunkmem::eviction::lru>;
#else
using chosen = chunkmem::manager<chunkmem::backend::simulated, chunkmem::eviction::lru, sunshine>;
#endif

chosen* made = nullptr;
