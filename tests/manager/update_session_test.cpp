// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/update_session.hpp>

#include "parts_rig.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <support/catch.hpp>

#include <utility>
#include <vector>

namespace update_session_test {

namespace cm = chunkmem;
using namespace cm::literals;
using numbers = std::vector<std::uint32_t>;

namespace {

/// Six weights of a chunk, which a test uses and differentiates in the orders that it gives.
struct fixture {
  static constexpr std::uint32_t count = 6;

  fixture()
  {
    m.use(kernel);
    weights = m.add_stacked<float>(count, {1000}, cm::role::parameter);
    for (std::uint32_t index = 0; index < count; ++index)
      for (float& it : m.acquire(weights.slice(index), cm::access::write).span()) it = 1;
  }
  void use(const numbers& which)
  {
    for (const std::uint32_t index : which) (void)m.acquire(weights.slice(index), cm::access::read);
  }
  void differentiate(const numbers& which, bool done = false)
  {
    for (const std::uint32_t index : which) {
      auto gradient = m.gradient(weights.slice(index));
      if (!m.rehearsing())
        for (float& it : gradient.span()) it = static_cast<float>(index);
      if (done) m.gradient_done(std::move(gradient));
    }
  }
  [[nodiscard]] numbers order()
  {
    numbers result;
    m.updates().for_each_in_order(
        0, [&](cm::tensor_handle, const cm::tensor_info& info) { result.push_back(info.ordinal); });
    return result;
  }
  /// Whose gradients the last iteration read, in their order; of each kind of access to a value or a gradient.
  [[nodiscard]] numbers reads(const cm::access_record& record, bool gradients) const
  {
    numbers result;
    for (const cm::access_entry& it : record.entries()) {
      const bool is_wanted =
          gradients ? it.kind == cm::entry_kind::read_on_host : it.kind == cm::entry_kind::read_write_on_host;
      if (is_wanted && it.slot / count == (gradients ? 1U : 0U)) result.push_back(it.slot % count);
    }
    return result;
  }

  cm::optimizer::sgd kernel;
  cm::backend::host_arena memory{{.device_capacity = 48_KiB, .host_capacity = 128_KiB}};
  cm::manager<cm::backend::host_arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::stacked<float> weights;
};

}  // namespace

TEST_CASE("gradients have the order in which they were completed, behind parameters that have none", "[manager]")
{
  fixture it;
  CHECK(it.order() == numbers{0, 1, 2, 3, 4, 5});
  it.differentiate({5, 3, 0, 1});
  it.differentiate({5});  // added to, and complete only now
  it.m.updates().order_by_completion();
  CHECK(it.order() == numbers{2, 4, 3, 0, 1, 5});
  it.m.gradient_done(it.weights.slice(3));
  it.m.updates().order_by_completion();
  CHECK(it.order() == numbers{2, 4, 0, 1, 5, 3});
  it.m.drop_gradients();
  CHECK(it.order() == numbers{0, 1, 2, 3, 4, 5});
}

TEST_CASE(
    "weights have the order in which the iteration used them first, also where it repeats, diverges or is rehearsed",
    "[manager]")
{
  fixture it;
  const auto ordered = [&](const numbers& used) {
    const auto scope = it.m.iteration();
    it.use(used);
    it.use({0, 1, 2});
    it.differentiate({4, 5, 3, 0, 2});
    it.m.updates().order_by_use();
    const numbers seen = it.order();
    it.m.drop_gradients();
    return seen;
  };
  numbers rehearsed;
  it.m.rehearse([&] { rehearsed = ordered({3, 5, 0}); });
  CHECK(rehearsed == numbers{1, 3, 5, 0, 2, 4});
  for (int turn = 0; turn < 4; ++turn) CHECK(ordered({3, 5, 0}) == rehearsed);
  CHECK(it.m.report().divergences == 0);
  CHECK(ordered({3, 0, 5}) == numbers{1, 3, 0, 5, 2, 4});
  CHECK(it.m.report().divergences == 1);
  it.differentiate({4, 2});
  it.m.updates().order_by_use();  // outside of an iteration nothing is known
  CHECK(it.order() == numbers{0, 1, 3, 5, 2, 4});
}

TEST_CASE("a step measures gradients as they were completed and updates weights as they are used, or as gradients came",
          "[manager]")
{
  for (const bool measured : {false, true})
    for (const bool needs_norm : {false, true}) {
      fixture it;
      for (int turn = 0; turn < 3; ++turn) {
        const auto scope = it.m.iteration();
        it.use({5, 0, 3, 1, 2, 4});
        it.differentiate({1, 3, 5, 4, 2}, measured);
        cm::optimizer::step(it.m, it.kernel, {.skip_nonfinite = needs_norm});
      }
      CHECK(it.m.report().divergences == 0);
      const numbers updates = needs_norm ? numbers{5, 3, 1, 2, 4} : numbers{1, 3, 5, 4, 2};
      numbers reads = updates;
      if (needs_norm && !measured) reads.insert(reads.begin(), {1, 3, 5, 4, 2});
      CHECK(it.reads(*it.m.profile(), true) == reads);
      CHECK(it.reads(*it.m.profile(), false) == updates);
      CHECK(it.order() == numbers{0, 1, 2, 3, 4, 5});
    }
}

TEST_CASE("a rehearsal leaves the order of a step that is half done", "[manager]")
{
  fixture it;
  it.differentiate({2, 0});
  it.m.updates().order_by_completion();
  const numbers before = it.order();
  const std::uint64_t opened = it.m.updates().gradients_opened();
  it.m.rehearse([&] {
    CHECK(it.order() == numbers{0, 1, 2, 3, 4, 5});
    it.m.drop_gradients();
    it.differentiate({0, 1, 2, 3, 4, 5});
    cm::optimizer::step(it.m, it.kernel);
  });
  CHECK(it.order() == before);
  CHECK(it.m.updates().gradients_opened() == opened);
}

TEST_CASE("a measure of all gradients that is given lasts until a gradient comes or goes, or the step is over",
          "[manager]")
{
  fixture it;
  cm::gradient_measure given;
  given.squares = 25.0;
  const auto is_forgotten_by = [&](auto change) {
    it.differentiate({0, 1, 2, 3, 4, 5});
    it.m.updates().keep_measure_of_all(given);
    if (it.m.updates().measure_of_all() == nullptr) return false;
    change();
    return it.m.updates().measure_of_all() == nullptr;
  };
  CHECK(is_forgotten_by([&] { it.differentiate({3}); }));
  CHECK(is_forgotten_by([&] { it.m.drop_gradient(it.weights.slice(3)); }));
  CHECK(is_forgotten_by([&] { it.m.drop_gradients(); }));
  CHECK(is_forgotten_by([&] { cm::optimizer::step(it.m, it.kernel); }));
  // which had no use for it
  CHECK(is_forgotten_by([&] { cm::optimizer::step(it.m, it.kernel, {.skip_nonfinite = false}); }));
  CHECK(is_forgotten_by([&] {
    it.m.content().begin_load();
    it.m.content().end_load();
  }));
  CHECK(!is_forgotten_by([&] { it.m.rehearse([&] { CHECK(it.m.updates().measure_of_all() == nullptr); }); }));
  CHECK(it.m.updates().measure_of_all()->squares == 25.0);
  it.m.rehearse([&] {
    it.differentiate({2});
    it.m.updates().keep_measure_of_all({});
    it.m.drop_gradients();
    CHECK(it.m.updates().measure_of_all() == nullptr);
  });
  CHECK(it.m.updates().measure_of_all()->squares == 25.0);
}

TEST_CASE("a step that is given the measure of all gradients reads each of them once", "[manager]")
{
  fixture it;
  for (int turn = 0; turn < 3; ++turn) {
    const auto scope = it.m.iteration();
    it.use({5, 0, 3, 1, 2, 4});
    it.differentiate({1, 3, 5, 4, 2});
    it.m.updates().keep_measure_of_all({});
    cm::optimizer::step(it.m, it.kernel, {.clip = {.norm = 1.0F}});
  }
  CHECK(it.m.report().divergences == 0);
  CHECK(it.reads(*it.m.profile(), true) == numbers{5, 3, 1, 2, 4});
}

namespace {

/// Four weights, two in a chunk, their gradients, and a frozen tensor; without a manager.
struct alone {
  using rig_type = manager_parts::parts_rig<>;
  using engine_type = rig_type::engine_type;
  using builder_type = rig_type::builder_type;

  alone()
  {
    for (int index = 0; index < 4; ++index) rig.add<float>(512);
    rig.add<float>(512, cm::role::frozen);
    rig.builder.prepare();
    for (const cm::slot_id each : cm::ids<cm::slot_id>(4)) rig.fill<float>(each, 1.0F);
  }
  [[nodiscard]] cm::tensor_handle handle(std::uint32_t index) const
  {
    return rig.builder.handle_of(cm::tensor_id{index});
  }
  void use(const numbers& which)
  {
    for (const std::uint32_t index : which) (void)rig.hold<const float>(cm::slot_id{index}, cm::access::read);
  }
  void differentiate(const numbers& which)
  {
    for (const std::uint32_t index : which) {
      gradients.expect<float>(cm::slot_id{index}, 0);
      rig.engine.release(gradients.open(cm::slot_id{index}, cm::entry_kind::write, cm::agent::host, false));
    }
  }
  [[nodiscard]] numbers order(std::uint32_t done = 0)
  {
    numbers result;
    updates.for_each_in_order(done,
                              [&](cm::tensor_handle, const cm::tensor_info& info) { result.push_back(info.ordinal); });
    return result;
  }

  rig_type rig;
  cm::gradient_store<engine_type, builder_type> gradients{rig.engine, rig.builder, rig.ledger, *rig.link};
  cm::update_session<engine_type, builder_type> updates{rig.engine, rig.builder, rig.ledger,
                                                        gradients,  rig.states,  *rig.link};
};

}  // namespace

TEST_CASE("a step that was cut short goes on where it was, in the same order", "[manager]")
{
  alone it;
  it.differentiate({2, 0, 3});
  it.updates.order_by_completion();
  const std::uint64_t forgotten = it.updates.steps_forgotten();
  it.updates.begin_update();
  it.updates.consume_gradient(it.handle(1));  // it has none
  it.updates.consume_gradient(it.handle(2));
  CHECK(it.order() == numbers{1, 2, 0, 3});
  CHECK(it.order(2) == numbers{0, 3});
  CHECK_THROWS_AS(it.differentiate({1}), cm::usage_error);
  CHECK(it.updates.steps_forgotten() == forgotten);
  it.updates.end_update();
  CHECK(it.order() == numbers{0, 1, 2, 3});
  it.differentiate({1});
}

TEST_CASE(
    "an order by use begins with weights without a gradient, then those that were named, and says where the rest is",
    "[manager]")
{
  alone it;
  const auto scope = it.rig.iterate();
  it.use({3, 1, 3});
  it.differentiate({0, 1, 3});
  CHECK(it.updates.order_by_use() == 1);
  CHECK(it.order() == numbers{2, 3, 1, 0});
  const cm::tensor_handle named[] = {it.handle(0), it.handle(2)};
  CHECK(it.updates.order_by_use(named) == 2);
  CHECK(it.order() == numbers{2, 0, 3, 1});
  const cm::tensor_handle wrong[] = {it.handle(1), it.handle(4)};
  CHECK_THROWS_AS(it.updates.order_by_use(wrong), cm::usage_error);
  CHECK(it.order() == numbers{2, 0, 3, 1});
}

TEST_CASE("updates that wait are done in the step's order before their chunk is used, and never without their object",
          "[manager]")
{
  alone it;
  it.differentiate({3, 0, 2});
  it.updates.order_by_completion();
  numbers updated, other;
  it.updates.make_room_for_updates();
  it.updates.hold_updates(manager_parts::note_update, &updated);
  CHECK(it.rig.engine.pending().count() == 3);
  CHECK(updated.empty());
  it.use({2});
  CHECK(updated == numbers{3, 2});
  it.updates.finish_updates();
  CHECK(updated == numbers{3, 2, 0});
  it.updates.make_room_for_updates();
  it.updates.hold_updates(manager_parts::note_update, &updated);
  it.updates.abandon_updates(&other);  // it serves none of them
  it.use({2});
  it.updates.abandon_updates(&updated);
  CHECK_THROWS_AS(it.use({1}), cm::usage_error);  // a chunk is updated as a whole
  CHECK_THROWS_AS(it.updates.finish_updates(), cm::usage_error);
  CHECK(it.rig.engine.pending().count() == 1);
  it.use({2, 3});
}

TEST_CASE("what a step measured is kept with its gradient, and a tensor that is not trained has none", "[manager]")
{
  alone it;
  CHECK_THROWS_AS(it.updates.measure_of(it.handle(4)), cm::usage_error);
  CHECK_THROWS_AS(it.updates.consume_gradient(it.handle(4)), cm::usage_error);
  it.differentiate({1, 2});
  const std::uint64_t opened = it.updates.gradients_opened();
  cm::gradient_measure measure;
  measure.squares = 25.0;
  it.updates.keep_measure(it.handle(1), measure);
  REQUIRE(it.updates.measure_of(it.handle(1)) != nullptr);
  CHECK(it.updates.measure_of(it.handle(1))->squares == 25.0);
  CHECK(it.updates.measure_of(it.handle(2)) == nullptr);
  CHECK(it.updates.gradients_opened() == opened);
  it.updates.consume_gradient(it.handle(1));
  CHECK(it.updates.measure_of(it.handle(1)) == nullptr);
  CHECK_FALSE(it.gradients.is_fresh(cm::slot_id{2}));
}

TEST_CASE("a step asks for kernels that were registered, a whole load and a whole iteration, of which it says once",
          "[manager]")
{
  alone it;
  cm::optimizer::sgd kernel;
  CHECK_THROWS_AS(it.updates.expect_used(kernel.progress.registered, "an optimizer kernel"), cm::usage_error);
  it.rig.states.add(kernel, [] {});
  it.updates.expect_used(kernel.progress.registered, "an optimizer kernel");
  it.rig.ledger.begin_load();
  CHECK_THROWS_AS(it.updates.expect_loaded("a step"), cm::usage_error);
  it.rig.ledger.end_load();
  it.updates.expect_loaded("a step");
  auto& batches = it.rig.link->micro_batches;
  batches.reserve(2);
  batches.begin(2);
  batches.name(1);
  it.updates.expect_whole_iteration();  // no gradient is of it
  it.rig.ledger.note_opened(cm::slot_id{0}, batches.moment());
  for (int time = 0; time < 2; ++time)
    CHECK_THROWS_AS(it.updates.expect_whole_iteration(), cm::usage_error);  // so long as it runs
  batches.end();
  it.updates.expect_whole_iteration();
  batches.keep();
  CHECK_THROWS_AS(it.updates.expect_whole_iteration(), cm::usage_error);
  it.updates.expect_whole_iteration();
}

TEST_CASE("an iteration that does what few others do leaves no record", "[manager]")
{
  alone it;
  const auto iterate = [&](bool is_exceptional) {
    const auto scope = it.rig.iterate();
    it.use({0, 1});
    if (is_exceptional) it.updates.keep_record();
  };
  iterate(true);
  CHECK(it.rig.engine.schedule().record_of("train") == nullptr);
  iterate(false);
  REQUIRE(it.rig.engine.schedule().record_of("train") != nullptr);
  CHECK(it.rig.engine.schedule().record_of("train")->size() == 2);
}

}  // namespace update_session_test
