// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/unit_gradients.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/sharding/gathering.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>

#include <support/catch.hpp>
#include <support/failing.hpp>
#include <support/told_gatherer.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace unit_gradients_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using manager_type = manager<backend::host_arena, sharding::gathering<collective::self>>;

constexpr auto name = [] { return std::string{"w"}; };

/// One unit of three tensors, on one rank.
struct rig {
  static constexpr bytes frame{65536};
  backend::host_arena memory{{.device_capacity = frame * 8, .host_capacity = frame * 8}};
  collective::self alone;
  agent adder = memory.adopt();
  manager_type m{memory, {.chunk_bytes = frame}, sharding::gathering<collective::self>{alone, memory.adopt()}};
  sharding::unit_plan<append_layout> plan;
  sharding::gathered_units units;
  sharding::unit_gradients<manager_type> gradients;

  explicit rig(const sharding::sharding_options& options = {})
  {
    for (int index = 0; index < 3; ++index) plan.add(dtype::float32, group_id{0}, true, 100);
    plan.seal(frame, 1);
    units.declare(
        m, plan, rank_id{0}, !options.divided.parameters, [](dtype type) { return type; },
        [](std::uint32_t tensor) { return tensor; });
    const std::vector<std::uint32_t> unit_of(3, 0);
    gradients.reset(unit_of, units.size(), options, adder);
    m.seal();
    const auto pin = m.acquire(tensor<float>{units[0].share}, access::write);
    for (float& it : pin.span()) it = 0;
  }
  /// @return   whether there was something to add to
  bool write(std::uint32_t tensor, float value)
  {
    auto opened = gradients.open(m, units[0], tensor, agent::host, name);
    float* const to = reinterpret_cast<float*>(std::as_const(opened.unit).data()) + plan.place(tensor).first;
    for (int index = 0; index < 100; ++index) to[index] = opened.adds ? to[index] + value : value;
    return opened.adds;
  }
  void done(std::uint32_t tensor) { gradients.done(m, units[0], tensor); }
  void end_micro_batch() { gradients.end_micro_batch(m, units.all()); }
  float sum(std::uint32_t tensor)
  {
    const auto pin = m.acquire<float>(units[0].share, gradient_list, access::read, memory_location::host);
    return pin.span()[plan.place(tensor).first + 99];
  }
};

TEST_CASE("gradients of a unit are summed when the last one is done, and what was not written is zero", "[sharding]")
{
  rig it{{.sum_scale = 0.5F}};
  CHECK_FALSE(it.write(0, 4));
  CHECK(it.write(0, 2));
  CHECK_FALSE(it.write(1, 8));
  it.done(0);
  it.done(0);
  it.done(1);
  CHECK_THROWS_AS(it.done(2), usage_error);
  CHECK_THROWS_WITH(it.write(0, 1), ContainsSubstring("tensor 'w': a gradient was requested after gradient_done"));
  CHECK(it.gradients.is_open(0));
  it.end_micro_batch();
  CHECK_FALSE(it.gradients.is_open(0));
  CHECK(it.sum(0) == 3);
  CHECK(it.sum(1) == 4);
  CHECK(it.sum(2) == 0);
  CHECK((it.gradients.is_of_step(0) && it.gradients.is_of_step(1) && !it.gradients.is_of_step(2)));
  it.gradients.forget_step();
  CHECK_FALSE(it.gradients.is_of_step(0));
}

TEST_CASE("sums of later micro-batches are added, and their room is free in between", "[sharding]")
{
  rig it;
  for (int batch = 0; batch < 3; ++batch) {
    for (const std::uint32_t tensor : {2U, 1U, 0U}) {
      CHECK_FALSE(it.write(tensor, static_cast<float>(batch + 1)));
      it.done(tensor);
    }
    CHECK(it.m.state_of(it.units[0].gradients) == tensor_state::free);
  }
  CHECK(it.sum(1) == 6);
}

TEST_CASE("units without a gradient that is done stay open at the end of a micro-batch, and are forgotten on demand",
          "[sharding]")
{
  rig it;
  it.write(1, 3);
  it.end_micro_batch();
  CHECK(it.gradients.is_open(0));
  CHECK(it.write(1, 4));
  it.gradients.forget(it.m, it.units.all());
  CHECK_FALSE(it.gradients.is_open(0));
  CHECK_FALSE(it.gradients.is_of_step(1));
  CHECK_FALSE(it.m.has_gradient(it.units[0].share));
  CHECK_FALSE(it.write(1, 5));
}

TEST_CASE("what a unit's gradients held before is gone when they are opened again", "[sharding]")
{
  rig it;
  for (const std::uint32_t tensor : {0U, 1U, 2U}) it.write(tensor, 5);
  it.end_micro_batch();  // none is done: nothing is summed
  CHECK(it.gradients.is_open(0));
  for (const std::uint32_t tensor : {0U, 1U, 2U}) it.done(tensor);
  it.end_micro_batch();
  it.write(1, 7);
  it.done(1);
  it.end_micro_batch();
  CHECK((it.sum(0) == 5 && it.sum(1) == 12 && it.sum(2) == 5));
}

TEST_CASE("a unit's gradients stay on the device from the first that is opened to their sum", "[sharding]")
{
  rig it;
  it.write(0, 1);
  CHECK_THROWS_AS(it.m.drop(it.units[0].gradients), usage_error);
  CHECK_THROWS_AS(it.m.acquire(it.units[0].gradients, access::read_write, memory_location::host), usage_error);
  it.gradients.finish(it.m, it.units[0], 0);
  CHECK(it.m.state_of(it.units[0].gradients) == tensor_state::free);
}

TEST_CASE(
    "gradients that are not divided add up whole, free to leave the device between micro-batches, and are summed in "
    "the last one",
    "[sharding]")
{
  rig it{{.divided = sharding::zero_3_reduce_last, .sum_scale = 0.5F}};
  auto iteration = it.m.iteration(3);
  for (std::uint32_t batch = 0; batch < 3; ++batch) {
    iteration.pass(pass::backward, batch);
    for (const std::uint32_t tensor : {2U, 1U, 0U}) {
      if (batch == 1 && tensor == 2) continue;  // without a gradient in this one
      CHECK(it.write(tensor, static_cast<float>(batch + 1)) == (batch > 0));
      it.done(tensor);
    }
    it.end_micro_batch();
    if (batch == 2) break;
    CHECK_FALSE(it.m.has_gradient(it.units[0].share));
    const auto away =
        it.m.acquire(it.units[0].gradients, access::read_write, memory_location::host);  // nothing keeps it
    CHECK(reinterpret_cast<const float*>(away.data())[0] == (batch == 0 ? 1.0F : 3.0F));
  }
  CHECK_FALSE(it.gradients.is_open(0));
  CHECK((it.sum(0) == 3 && it.sum(1) == 3 && it.sum(2) == 2));
  iteration.end();
  const auto next = it.m.iteration();
  CHECK_FALSE(it.write(0, 2));
}

TEST_CASE("gradients that are summed once are summed in the last micro-batch of each order of passes", "[sharding]")
{
  using passes = std::vector<std::pair<pass, std::uint32_t>>;
  constexpr pass forward = pass::forward, backward = pass::backward;
  for (const passes& order :
       {passes{{forward, 0}, {forward, 1}, {forward, 2}, {backward, 0}, {backward, 1}, {backward, 2}},  // GPipe
        passes{{forward, 0}, {forward, 1}, {backward, 0}, {forward, 2}, {backward, 1}, {backward, 2}},  // 1F1B
        passes{{forward, 2}, {backward, 2}, {forward, 0}, {backward, 0}, {forward, 1}, {backward, 1}}}) {
    rig it{{.divided = sharding::zero_3_reduce_last}};
    auto iteration = it.m.iteration(3);
    std::uint32_t ended = 0;
    for (const auto& [during, batch] : order) {
      it.end_micro_batch();
      iteration.pass(during, batch);
      if (during == forward) continue;
      for (const std::uint32_t tensor : {0U, 1U, 2U}) {
        CHECK(it.write(tensor, static_cast<float>(batch + 1)) == (ended > 0));
        it.done(tensor);
      }
      CHECK(it.gradients.is_open(0) == (++ended < 3));
      CHECK(it.m.has_gradient(it.units[0].share) == (ended == 3));
    }
    CHECK(it.sum(1) == 6);
  }
}

TEST_CASE("gradients that add up whole are summed by the step from wherever they are", "[sharding]")
{
  rig it{{.divided = sharding::zero_1}};
  auto iteration = it.m.iteration(2);
  iteration.pass(pass::backward, 0);
  it.write(1, 3);
  for (const std::uint32_t tensor : {0U, 2U}) it.write(tensor, 1);
  for (const std::uint32_t tensor : {0U, 1U, 2U}) it.done(tensor);
  {
    const auto away = it.m.acquire(it.units[0].gradients, access::read_write, memory_location::host);
  }
  it.end_micro_batch();
  iteration.pass(pass::backward, 1);
  it.gradients.finish(it.m, it.units[0], 0);
  CHECK((it.sum(0) == 1 && it.sum(1) == 3));
}

TEST_CASE("a rehearsal puts back which gradients a step has, and does not begin while one is open", "[sharding]")
{
  rig it;
  it.write(0, 1);
  CHECK_THROWS_AS(it.gradients.begin_rehearsal(), usage_error);
  CHECK((it.gradients.is_open(0) && it.gradients.is_of_step(0)));
  it.gradients.finish(it.m, it.units[0], 0);
  it.gradients.begin_rehearsal();
  (void)it.m.rehearse([&] {
    it.gradients.forget_rehearsal();
    CHECK_FALSE(it.gradients.is_of_step(0));
    (void)it.gradients.open(it.m, it.units[0], 1, agent::host, name);
    it.done(1);
    (void)it.gradients.open(it.m, it.units[0], 2, agent::host, name);
    CHECK((it.gradients.is_open(0) && it.gradients.is_of_step(1)));
  });
  it.gradients.end_rehearsal();
  CHECK_FALSE(it.gradients.is_open(0));
  CHECK((it.gradients.is_of_step(0) && !it.gradients.is_of_step(1) && !it.gradients.is_of_step(2)));
  CHECK_FALSE(it.write(1, 3));
  it.done(1);
  it.gradients.finish(it.m, it.units[0], 0);
  CHECK((it.sum(0) == 1 && it.sum(1) == 3));
}

namespace {

using failing = support::failing<backend::host_arena>;
using told_type = manager<failing, support::told_gatherer, gradient::separate>;

/// Rank 1 of two. Unit 0 has two tensors, of which it owns the second; unit 1 is another group's.
struct told_rig {
  static constexpr bytes frame{32768};
  failing memory{{}, backend::host_arena_options{.device_capacity = frame * 16, .host_capacity = frame * 16}};
  support::told_of_ranks told;
  agent adder = memory.adopt();
  told_type m;
  sharding::unit_plan<append_layout> plan;
  sharding::gathered_units units;
  sharding::unit_gradients<told_type> gradients;

  explicit told_rig(dtype type = dtype::float32)
      : m{memory,
          {.chunk_bytes = frame},
          support::told_gatherer{{}, &told, memory.adopt()},
          gradient::separate{.wide = true}}
  {
    const std::uint64_t share = frame.count() / size_of(type) / 2;
    plan.add(type, group_id{0}, true, share);
    plan.add(type, group_id{0}, true, share - 96);
    plan.add(type, group_id{1}, true, 100);
    plan.seal(frame, 2);
    units.declare(
        m, plan, rank_id{1}, false, [](dtype) { return dtype::float32; }, [](std::uint32_t tensor) { return tensor; });
    const std::vector<std::uint32_t> unit_of{0, 0, 1};
    gradients.reset(unit_of, units.size(), {.sum_scale = 0.5F}, adder);
    m.seal();
    for (std::uint32_t index = 0; index < 2; ++index)
      sharding::with_element(type, [&]<class Element>(Element) {
        const auto pin = m.acquire(tensor<Element>{units[index].share}, access::write);
        for (Element& it : pin.span()) it = Element{};
      });
  }
  void write(std::uint32_t tensor, float value)
  {
    const std::uint32_t unit = plan.place(tensor).unit;
    auto opened = gradients.open(m, units[unit], tensor, agent::host, name);
    std::fill_n(reinterpret_cast<float*>(std::as_const(opened.unit).data()) + plan.place(tensor).first,
                plan.elements(tensor), value);
  }
  std::vector<float> share_of(std::uint32_t unit)
  {
    const auto pin = m.acquire<float>(units[unit].share, gradient_list, access::read, memory_location::host);
    return {pin.span().begin(), pin.span().end()};
  }
};

}  // namespace

TEST_CASE("a unit is summed once under its number, and the rank keeps its own part of the sum", "[sharding]")
{
  for (const dtype type : {dtype::float32, dtype::bfloat16, dtype::float16}) {
    told_rig it{type};
    const float fine = 5 + 0x1p-20F;  // which 16 bits do not hold: gradients are wide
    it.write(2, 9);
    it.write(0, 3);
    it.write(1, fine);
    it.gradients.finish(it.m, it.units[1], 1);
    it.gradients.finish(it.m, it.units[0], 0);
    it.gradients.finish(it.m, it.units[0], 0);  // not open any more
    REQUIRE(it.told.sums.size() == 2);
    for (const std::uint32_t index : {0U, 1U}) {
      const auto& sum = it.told.sums[1 - index];
      CHECK((sum.label == index && sum.size == it.units[index].elements * 4 && sum.how.type == dtype::float32 &&
             sum.how.scale == 0.5F));
    }
    const std::vector<float> own = it.share_of(0);
    REQUIRE(own.size() == it.units[0].share_elements);
    CHECK(std::all_of(own.begin(), own.end() - 96, [&](float value) { return value == fine; }));
    CHECK(std::all_of(own.end() - 96, own.end(), [](float value) { return value == 0; }));
    const std::vector<float> other = it.share_of(1);
    // its tensor is all the other rank's
    CHECK(std::all_of(other.begin(), other.end(), [](float value) { return value == 0; }));
  }
}

TEST_CASE("a sum that is done is not done again where what came behind it failed, and nothing is added twice",
          "[sharding]")
{
  std::uint32_t failures = 0;
  for (const bool adds : {false, true})
    for (std::uint64_t which = 0;; ++which) {
      told_rig it;
      it.write(1, 16);
      it.gradients.finish(it.m, it.units[0], 0);
      if (!adds) it.m.drop_gradients();  // but its room is full of them
      const std::size_t summed = it.told.sums.size();
      it.write(0, 3);
      it.write(1, 5);
      it.memory.set_plan({.copy = it.memory.copies() + which});
      bool failed = false;
      try {
        it.gradients.finish(it.m, it.units[0], 0);
      } catch (const device_error&) {
        failed = true;
        it.gradients.finish(it.m, it.units[0], 0);
      }
      INFO((adds ? "added to, " : "first, ") << "copy " << which << (failed ? " failed" : ""));
      it.memory.set_plan({});
      CHECK(it.told.sums.size() == summed + 1);
      CHECK(it.share_of(0)[7] == (adds ? 21 : 5));
      if (!failed) break;
      ++failures;
    }
  CHECK(failures > 0);
}

TEST_CASE("a gradient that was declared done while its sum failed is summed when it is declared again", "[sharding]")
{
  told_rig it;
  it.write(1, 16);
  it.gradients.finish(it.m, it.units[0], 0);
  it.m.drop_gradients();  // but its room is full of them
  const std::size_t summed = it.told.sums.size();
  it.write(0, 3);
  it.write(1, 5);
  it.gradients.done(it.m, it.units[0], 0);
  it.memory.set_plan({.copy = it.memory.copies()});
  CHECK_THROWS_AS(it.gradients.done(it.m, it.units[0], 1), device_error);
  it.memory.set_plan({});
  CHECK(it.gradients.is_open(0));
  it.gradients.done(it.m, it.units[0], 1);
  CHECK_FALSE(it.gradients.is_open(0));
  CHECK(it.told.sums.size() == summed + 1);
  CHECK(it.share_of(0)[7] == 5);
}

}  // namespace unit_gradients_test
