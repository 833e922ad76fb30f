// SPDX-License-Identifier: Apache-2.0
#include "matrix.hpp"

#include <chunkmem/transfer/transfers.hpp>

namespace host_arena_test {

using namespace equality;
using arena = cm::backend::host_arena;
using demand_manager = cm::manager<arena, support::every_eviction, cm::transfer::no_prefetch>;
using ahead_manager = cm::manager<arena, support::every_eviction, cm::transfer::lookahead>;

TEST_CASE("training in capped memory equals training on vectors bit for bit", "[equality]")
{
  CHECK(run_matrix<demand_manager, ahead_manager, arena>(cm::backend::host_arena_options{}, false) == runs_of_matrix);
}

TEST_CASE("so it does when kernels run on a stream and half of them on an adopted one", "[equality]")
{
  const cm::backend::host_arena_options options{.async_compute = true};
  CHECK(run_matrix<demand_manager, ahead_manager, arena>(options, true) == runs_of_matrix);
}

TEST_CASE("kernels on compute that is the caller give the same bits", "[equality]")
{
  CHECK(run_matrix<demand_manager, ahead_manager, arena>(cm::backend::host_arena_options{}, true) == runs_of_matrix);
}

TEST_CASE("policies named by type decide as those chosen at run time", "[equality]")
{
  using lru_manager = cm::manager<arena, cm::eviction::lru>;
  using belady_manager = cm::manager<arena>;
  const cm::backend::host_arena_options options{.host_capacity = plenty};
  const cm::memory_requirement need = need_of<belady_manager, arena>(options, plenty);
  CHECK(need.smallest_device ==
        need_of<ahead_manager, arena>(options, plenty, support::every_eviction{"belady"}).smallest_device);
  const cm::backend::host_arena_options tight{.device_capacity = device_for(size::half_more, need),
                                              .host_capacity = plenty};
  CHECK(run_and_compare<lru_manager, arena>(tight, {}).loads ==
        run_and_compare<ahead_manager, arena>(tight, {}, support::every_eviction{"lru"}).loads);
  CHECK(run_and_compare<belady_manager, arena>(tight, {}).loads ==
        run_and_compare<ahead_manager, arena>(tight, {}, support::every_eviction{"belady"}).loads);
}

TEST_CASE("every capacity from the smallest on gives the same bits", "[equality]")
{
  const cm::backend::host_arena_options options{.host_capacity = plenty};
  for (const std::string_view which : {"lru", "belady"}) {
    const support::every_eviction eviction{which};
    const cm::memory_requirement need = need_of<ahead_manager, arena>(options, plenty, eviction);
    for (std::uint64_t more = 0; more < 8; ++more) {
      INFO("frames more than the smallest: " << more << ", eviction " << which);
      const cm::backend::host_arena_options tight{
          .device_capacity = need.smallest_device + more * frame - (more % 2) * 256_B, .host_capacity = plenty};
      run_and_compare<ahead_manager, arena>(tight, {.launched = more % 4 == 3}, eviction);
    }
  }
}

}  // namespace host_arena_test
