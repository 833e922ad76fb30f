// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/parameter_walk.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <support/catch.hpp>
#include <support/failing.hpp>

#include <optional>
#include <vector>

namespace parameter_walk_test {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;
using manager = cm::manager<arena>;
using walk = cm::optimizer::detail::parameter_walk<manager, cm::optimizer::adam>;

namespace {

struct fixture {
  fixture()
  {
    m.use(kernel);
    first = m.add<cm::bf16>({32}, cm::role::parameter);
    frozen = m.add<float>({32}, cm::role::frozen);
    second = m.add<float>({16}, cm::role::parameter, cm::group_id{1});
    for (cm::bf16& value : m.acquire(first, cm::access::write).span()) value = cm::bf16{1.0F};
    for (float& value : m.acquire(second, cm::access::write).span()) value = 1;
  }
  void differentiate()
  {
    for (cm::bf16& value : m.gradient(first).span()) value = cm::bf16{1.0F};
    for (float& value : m.gradient(second).span()) value = 1;
  }

  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  cm::optimizer::adam kernel;
  cm::tensor<cm::bf16> first{};
  cm::tensor<float> frozen{}, second{};
};

}  // namespace

TEST_CASE("a walk pins the bytes of one parameter after the other, masters only where they are", "[optimizer]")
{
  fixture it;
  const auto scope = it.m.iteration();
  it.differentiate();
  const cm::optimizer::step_options options;
  walk way{it.m, it.kernel, options};
  std::vector<std::size_t> lists;
  way.for_each_unfinished([&](cm::tensor_handle parameter, const cm::tensor_info& info) {
    way.update(parameter, info, cm::at::host, [&](const cm::optimizer::parameter_bytes& all) {
      lists.push_back(all.list_count);
      CHECK(all.elements == info.extents.elements());
      CHECK(all.value_type == info.type);
      CHECK(all.tensor == index_of(parameter.id));
      CHECK_FALSE(all.fresh_master);
      CHECK((all.value != nullptr && all.gradient != nullptr && all.lists[0].data != nullptr));
    });
    CHECK_FALSE(it.m.has_gradient(parameter));
  });
  CHECK(lists == std::vector<std::size_t>{3, 2});
  CHECK(it.kernel.progress.reached == 2);
  way.for_each_unfinished([](cm::tensor_handle, const cm::tensor_info&) { FAIL("a parameter was visited twice"); });
}

TEST_CASE("new gradients of what a walk has passed are refused", "[optimizer]")
{
  fixture it;
  const cm::optimizer::step_options options;
  walk way{it.m, it.kernel, options};
  it.differentiate();
  it.kernel.progress.reached = 1;
  CHECK_THROWS_AS(way.finish_last(), cm::usage_error);
  it.kernel.progress.undropped = 1;  // it was updated, and its gradient could not be dropped
  way.finish_last();
  CHECK_FALSE(it.m.has_gradient(it.first));
  CHECK(it.m.has_gradient(it.second));
}

TEST_CASE("learning rates come by group where they are given so", "[optimizer]")
{
  fixture it;
  const float rates[] = {0.5F, 0.25F};
  const cm::optimizer::step_options common{.learning_rate = 2.0F};
  const cm::optimizer::step_options by_group{.learning_rate = 2.0F, .group_rates = rates};
  CHECK(walk{it.m, it.kernel, common}.rate_of(cm::group_id{1}) == 2.0F);
  CHECK(walk{it.m, it.kernel, by_group}.rate_of(cm::group_id{1}) == 0.25F);
  const cm::optimizer::step_options short_rates{.group_rates = {rates, 1}};
  CHECK_THROWS_AS((walk{it.m, it.kernel, short_rates}), cm::usage_error);
}

TEST_CASE("a rehearsal begins its walk anew and leaves the real progress alone", "[optimizer]")
{
  cm::optimizer::step_progress progress{.number = 5, .reached = 3};
  {
    const cm::optimizer::detail::kept_progress kept{progress, true};
    CHECK((progress.number == 5 && progress.reached == 0));
    progress.reached = 9;
  }
  CHECK(progress.reached == 3);
  {
    const cm::optimizer::detail::kept_progress kept{progress, false};
    progress.reached = 4;
  }
  CHECK(progress.reached == 4);
}

namespace {

/// The masters after a step outside of iterations, which makes them itself, where this copy fails once.
std::vector<float> masters(std::optional<std::uint64_t> failed, std::uint64_t& copies)
{
  using backend = support::failing<arena>;
  backend memory{support::failure_plan{},
                 cm::backend::host_arena_options{.device_capacity = 16_KiB, .host_capacity = 256_KiB}};
  cm::manager<backend> m{memory, {.chunk_bytes = 4_KiB}};
  cm::optimizer::adam kernel;
  m.use(kernel);
  const auto weights = m.add_stacked<cm::bf16>(2, {1000}, cm::role::parameter);
  for (std::uint32_t at = 0; at < 2; ++at)
    for (cm::bf16& value : m.acquire(weights.slice(at), cm::access::write).span()) value = cm::round_to<cm::bf16>(0.5F);
  for (std::uint32_t at = 0; at < 2; ++at)
    for (cm::bf16& value : m.gradient(weights.slice(at)).span()) value = cm::round_to<cm::bf16>(0.25F);
  memory.set_plan({.copy = failed ? std::optional{memory.copies() + *failed} : std::nullopt});
  const std::uint64_t before = memory.copies();
  try {
    cm::optimizer::step(m, kernel);
  } catch (const cm::device_error&) {
    cm::optimizer::step(m, kernel);
  }
  copies = memory.copies() - before;
  std::vector<float> all;
  for (std::uint32_t at = 0; at < 2; ++at)
    for (const float it : m.acquire<float>(weights.slice(at), m.list("master"), cm::access::read, cm::at::host).span())
      all.push_back(it);
  return all;
}

}  // namespace

TEST_CASE("a master that an update makes is not there before its weight is, whichever copy fails", "[optimizer]")
{
  std::uint64_t copies = 0;
  const auto undisturbed = masters({}, copies);
  REQUIRE(copies > 2);
  std::uint64_t ignored = 0;
  for (std::uint64_t at = 0; at < copies; ++at) {
    CAPTURE(at);
    const bool same = masters(at, ignored) == undisturbed;
    CHECK(same);
  }
}

}  // namespace parameter_walk_test
