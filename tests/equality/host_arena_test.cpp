// SPDX-License-Identifier: Apache-2.0
#include "matrix.hpp"

#include <chunkmem/backend/host_arena.hpp>

namespace host_arena_test {

using namespace equality;

namespace {

support::any_options arena(bool async_compute, cm::bytes device = 0_B)
{
  return cm::backend::host_arena_options{
      .device_capacity = device, .host_capacity = plenty, .async_compute = async_compute};
}

}  // namespace

TEST_CASE("training in capped memory equals training on vectors bit for bit", "[equality]")
{
  CHECK(run_matrix<any_backend>(arena(false), false) == runs_of_matrix);
}

TEST_CASE("so it does when kernels run on a stream and half of them on an adopted one", "[equality]")
{
  CHECK(run_matrix<any_backend>(arena(true), true) == runs_of_matrix);
}

TEST_CASE("kernels on compute that is the caller give the same bits", "[equality]")
{
  CHECK(run_matrix<any_backend>(arena(false), true) == runs_of_matrix);
}

TEST_CASE("policies named by type decide as those chosen at run time", "[equality]")
{
  using lru_manager = cm::manager<any_backend, cm::eviction::lru>;
  using belady_manager = cm::manager<cm::backend::host_arena>;
  const cm::backend::host_arena_options roomy{.host_capacity = plenty};
  const cm::memory_requirement need = need_of<belady_manager, cm::backend::host_arena>(roomy, plenty);
  CHECK(need.smallest_device ==
        need_of<ahead_manager, any_backend>(arena(false), plenty, evicting("belady")).smallest_device);
  const cm::backend::host_arena_options tight{.device_capacity = device_for(size::half_more, need),
                                              .host_capacity = plenty};
  const support::any_options same = tight;
  CHECK(run_and_compare<lru_manager, any_backend>(same, {}).loads ==
        run_and_compare<ahead_manager, any_backend>(same, {}, evicting("lru")).loads);
  CHECK(run_and_compare<belady_manager, cm::backend::host_arena>(tight, {}).loads ==
        run_and_compare<ahead_manager, any_backend>(same, {}, evicting("belady")).loads);
}

TEST_CASE("every capacity from the smallest on gives the same bits", "[equality]")
{
  for (const std::string_view which : {"lru", "belady"}) {
    const policies with = evicting(which);
    const cm::memory_requirement need = need_of<ahead_manager, any_backend>(arena(false), plenty, with);
    for (std::uint64_t more = 0; more < 8; ++more) {
      INFO("frames more than the smallest: " << more << ", eviction " << which);
      const support::any_options tight = arena(false, need.smallest_device + more * frame - (more % 2) * 256_B);
      run_and_compare<ahead_manager, any_backend>(tight, {.launched = more % 4 == 3}, with);
    }
  }
}

}  // namespace host_arena_test
