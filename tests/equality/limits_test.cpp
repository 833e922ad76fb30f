// SPDX-License-Identifier: Apache-2.0
#include "matrix.hpp"

#include <chunkmem/backend/host_arena.hpp>

#include <initializer_list>
#include <string>

namespace limits_test {

using namespace equality;
using Catch::Matchers::ContainsSubstring;

namespace {

const support::any_options roomy = cm::backend::host_arena_options{.host_capacity = plenty};

any_backend arena(cm::bytes device, cm::bytes host = plenty)
{
  return any_backend{cm::backend::host_arena_options{.device_capacity = device, .host_capacity = host}};
}

template <class Manager>
void refuse_one_frame_less(std::string_view which)
{
  const policies with = evicting(which);
  const cm::memory_requirement need = need_of<Manager, any_backend>(roomy, plenty, with);
  CHECK(need.rehearsed);
  CHECK(need.smallest_device < need.everything);

  any_backend memory = arena(need.smallest_device - frame);
  Manager m = make<Manager>(memory, with);
  toy::toy_trainer<Manager, any_backend> trainer{m, memory};
  try {
    trainer.rehearse();
    FAIL("one frame less than the smallest device was accepted");
  } catch (const cm::config_error& refused) {
    CHECK_THAT(refused.what(), ContainsSubstring(std::to_string(need.smallest_device.count())));
    CHECK_THAT(refused.what(), ContainsSubstring("device"));
  }
  CHECK(m.report().peak[cm::tier::device] == 0_B);
}

/// Training without a rehearsal on too small a device: the step that does not fit says so and harms nothing.
template <class Manager>
void fail_without_rehearsal(std::string_view which)
{
  const policies with = evicting(which);
  const cm::memory_requirement need = need_of<Manager, any_backend>(roomy, plenty, with);
  any_backend memory = arena(need.smallest_device - frame);
  Manager m = make<Manager>(memory, with);
  toy::toy_trainer<Manager, any_backend> trainer{m, memory};
  trainer.initialise();
  const toy::outcome before = trainer.collect();
  const cm::report quiet = m.report();
  for (int attempt = 0; attempt < 3; ++attempt) {
    try {
      trainer.step(0);
      FAIL("a step ran on less than the smallest device");
    } catch (const cm::out_of_memory& refused) {
      CHECK(refused.shortage().where == cm::tier::device);
      CHECK(refused.shortage().needed >= refused.shortage().requested + refused.shortage().pinned);
      CHECK(refused.shortage().capacity == (need.smallest_device - frame).count());
      CHECK_THAT(refused.what(), ContainsSubstring(std::to_string(refused.shortage().needed)));
    }
    trainer.forget_step();
    CHECK(trainer.collect().difference(before) == "");
    CHECK(m.report().in_use[cm::tier::device] <= quiet.capacity[cm::tier::device]);
  }
  for (const auto& it : trainer.parameters()) CHECK(m.acquire(it, cm::access::read).size() > 0);
}

}  // namespace

TEST_CASE("a rehearsal refuses one frame less than the smallest device", "[equality]")
{
  for (const std::string_view which : {"lru", "belady"}) {
    refuse_one_frame_less<demand_manager>(which);
    refuse_one_frame_less<ahead_manager>(which);
  }
}

TEST_CASE("a rehearsal refuses one frame less than the smallest host", "[equality]")
{
  const cm::bytes device = 20 * frame;
  const cm::memory_requirement need = need_of<ahead_manager, any_backend>(roomy, device);
  any_backend memory = arena(device, need.smallest_host - frame);
  ahead_manager m = make<ahead_manager>(memory, {});
  toy::toy_trainer<ahead_manager, any_backend> trainer{m, memory};
  CHECK_THROWS_AS(trainer.rehearse(), cm::config_error);
}

TEST_CASE("without a rehearsal the acquire that does not fit names its bytes and harms nothing", "[equality]")
{
  for (const std::string_view which : {"lru", "belady"}) {
    fail_without_rehearsal<demand_manager>(which);
    fail_without_rehearsal<ahead_manager>(which);
  }
}

TEST_CASE("an acquire that does not fit leaves pins, states and bytes as they were", "[equality]")
{
  any_backend memory = arena(2 * frame);
  ahead_manager m = make<ahead_manager>(memory, {});
  const auto weights = m.add_stacked<float>(4, {1024}, cm::role::parameter);
  for (std::uint32_t index = 0; index < 4; ++index)
    for (float& value : m.acquire(weights.slice(index), cm::access::write).span()) value = static_cast<float>(index);
  {
    const auto first = m.acquire(weights.slice(0), cm::access::read);
    const auto second = m.acquire(weights.slice(1), cm::access::read);
    const cm::report before = m.report();
    for (const cm::access how :
         std::initializer_list<cm::access>{cm::access::read, cm::access::read_write, cm::access::write}) {
      try {
        const auto third = m.acquire(weights.slice(2), how);
        FAIL("three chunks were pinned in two frames");
      } catch (const cm::out_of_memory& refused) {
        CHECK(refused.shortage().requested == frame.count());
        CHECK(refused.shortage().pinned == 2 * frame.count());
        CHECK(refused.shortage().needed == 3 * frame.count());
      }
      CHECK_THROWS_AS(m.lease(cm::tier::device, 256_B), cm::out_of_memory);
      CHECK(m.state_of(weights.slice(2)) == cm::tensor_state::hold);
      CHECK(m.report().in_use[cm::tier::device] == before.in_use[cm::tier::device]);
      CHECK(m.report().in_use[cm::tier::host] == before.in_use[cm::tier::host]);
    }
    CHECK(first.span()[5] == 0.0F);
    CHECK(second.span()[5] == 1.0F);
  }
  for (std::uint32_t index = 0; index < 4; ++index)
    CHECK(m.acquire(weights.slice(index), cm::access::read).span()[7] == static_cast<float>(index));
}

}  // namespace limits_test
