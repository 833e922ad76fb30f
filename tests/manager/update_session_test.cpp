// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/update_session.hpp>

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

}  // namespace update_session_test
