// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/step.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/profile/profile_text.hpp>
#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/count_allocations.hpp>
#include <support/mixed_model.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace step_test {

namespace cm = chunkmem;
namespace mixed = support::mixed;
using namespace cm::literals;
using support::any_backend;
using manager = cm::manager<any_backend, support::chosen_gradient>;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::uint32_t layers = 6;

/// Six weights of a chunk, a device of three: each update moves chunks, and each of these copies may fail.
template <class Kernel>
struct fixture {
  explicit fixture(const support::failure_plan& plan = {})
      : memory{support::adversarial_options{
                   .device_capacity = 12_KiB, .host_capacity = 256_KiB, .when = support::schedule::latest},
               plan}
  {
    m.use(kernel);
    weights = m.template add_stacked<float>(layers, {1000}, cm::role::parameter);
  }
  void fill()
  {
    for (std::uint32_t index = 0; index < layers; ++index)
      mixed::fill(m.acquire(weights.slice(index), cm::access::write).span(), index);
  }
  /// Gradients of all layers but those for which `skipped` says so.
  void differentiate(std::uint64_t step, std::uint32_t skipped = layers)
  {
    for (std::uint32_t index = 0; index < layers; ++index)
      if (index != skipped) mixed::fill(m.gradient(weights.slice(index)).span(), 100 * step + index);
  }
  std::vector<float> everything()
  {
    std::vector<float> all;
    for (std::uint32_t index = 0; index < layers; ++index) {
      append(all, m.template acquire<float>(weights.slice(index), cm::value_list, cm::access::read,
                                            cm::memory_location::host)
                      .span());
      for (const cm::list_spec& spec : kernel.lists())
        if (spec.use == cm::list_use::state)
          append(all, m.template acquire<float>(weights.slice(index), m.list(spec.name), cm::access::read,
                                                cm::memory_location::host)
                          .span());
    }
    return all;
  }
  static void append(std::vector<float>& all, std::span<const float> more)
  {
    all.insert(all.end(), more.begin(), more.end());
  }

  Kernel kernel;
  any_backend memory;
  manager m{memory, {.chunk_bytes = 4_KiB}};
  cm::stacked<float> weights;
};

template <class Kernel>
std::vector<float> undisturbed(std::uint64_t& copies)
{
  fixture<Kernel> it;
  it.fill();
  for (std::uint64_t step = 0; step < 3; ++step) {
    it.differentiate(step);
    cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.1F});
  }
  copies = it.memory.copies();
  return it.everything();
}

/// Whichever copy fails in an update: calling again finishes it with the same bits.
template <class Kernel>
void redo_after_every_copy()
{
  std::uint64_t copies = 0;
  const std::vector<float> expected = undisturbed<Kernel>(copies);
  std::uint64_t caught = 0;
  for (std::uint64_t k = 0; k < copies; ++k) {
    INFO("copy " << k);
    fixture<Kernel> it;
    it.fill();
    bool in_update = false;
    for (std::uint64_t step = 0; step < 3; ++step) {
      it.differentiate(step);
      it.memory.set_plan({.copy = k});
      for (bool done = false; !done;) {
        try {
          cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.1F});
          done = true;
        } catch (const cm::device_error&) {
          in_update = true;
          CHECK(it.kernel.progress.number == step);
        }
      }
      CHECK(it.kernel.progress.number == step + 1);
      CHECK(it.kernel.progress.reached == 0);
      for (std::uint32_t index = 0; index < layers; ++index) CHECK(!it.m.has_gradient(it.weights.slice(index)));
      it.memory.set_plan({});
    }
    REQUIRE(it.everything() == expected);
    caught += in_update ? 1 : 0;
  }
  CHECK(caught > 10);
}

}  // namespace

TEST_CASE("an update that fails is finished by the next call, with the same bits", "[optimizer]")
{
  redo_after_every_copy<cm::optimizer::adam>();
  redo_after_every_copy<cm::optimizer::sgd>();
}

TEST_CASE("a step that was cut short is finished with the options that it began with, and no others", "[optimizer]")
{
  using Catch::Matchers::ContainsSubstring;
  using cm::optimizer::step_options;
  std::uint64_t copies = 0;
  const std::vector<float> expected = undisturbed<cm::optimizer::adam>(copies);
  std::uint32_t refused = 0;
  for (std::uint64_t k = 0; k < copies; k += 3) {
    fixture<cm::optimizer::adam> it;
    it.fill();
    const cm::optimizer::adam_options usual = it.kernel.options();
    for (std::uint64_t step = 0; step < 3; ++step) {
      it.differentiate(step);
      it.memory.set_plan({.copy = k});
      try {
        cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.1F});
      } catch (const cm::device_error&) {
        it.memory.set_plan({});
        if (it.kernel.progress.decision != cm::optimizer::step_decision::open) {
          ++refused;
          CHECK_THROWS_WITH(cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.2F}),
                            ContainsSubstring("half done was called again with other options"));
          CHECK_THROWS_AS(cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.1F, .seed = 1}), cm::usage_error);
          it.kernel.group(cm::group_id{0}, {.weight_decay = 100.0F});
          CHECK_THROWS_AS(cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.1F}), cm::usage_error);
          it.kernel.group(cm::group_id{0}, usual);
        }
        cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.1F});
      }
      it.memory.set_plan({});
    }
    REQUIRE(it.everything() == expected);
  }
  CHECK(refused > 3);
}

TEST_CASE("a parameter without a gradient keeps its value and its states", "[optimizer]")
{
  fixture<cm::optimizer::adam> it;
  it.fill();
  it.differentiate(0);
  cm::optimizer::step(it.m, it.kernel);
  const std::vector<float> before = it.everything();
  for (const std::uint32_t skipped : {0U, 3U, layers - 1}) {
    it.differentiate(1, skipped);
    cm::optimizer::step(it.m, it.kernel);
    it.m.drop_gradients();
  }
  CHECK(it.kernel.progress.number == 4);
  for (std::uint32_t index = 0; index < layers; ++index)
    CHECK(it.kernel.progress.missed.of(index) == (index == 0 || index == 3 || index == layers - 1 ? 1 : 0));

  fixture<cm::optimizer::adam> one;
  one.fill();
  one.differentiate(0);
  cm::optimizer::step(one.m, one.kernel);
  one.differentiate(1, 2);
  cm::optimizer::step(one.m, one.kernel);
  const std::vector<float> after = one.everything();
  const std::size_t each = 3'000;
  for (std::size_t index = 0; index < after.size(); ++index) {
    if (index / each == 2) REQUIRE(after[index] == before[index]);
  }
  CHECK(after[0] != before[0]);
}

TEST_CASE("a step allocates nothing, whichever weights miss it", "[optimizer]")
{
  any_backend memory{cm::backend::host_arena_options{.device_capacity = 64_KiB, .host_capacity = 256_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  cm::optimizer::adam adam;
  m.use(adam);
  const auto weights = m.add_stacked<float>(layers, {1000}, cm::role::parameter);
  for (std::uint32_t index = 0; index < layers; ++index)
    mixed::fill(m.acquire(weights.slice(index), cm::access::write).span(), index);
  for (std::uint32_t now = 0; now < 60; ++now) {
    for (std::uint32_t index = 1 + now % (layers - 1); index < layers; ++index)
      for (float& each : m.gradient(weights.slice(index)).span()) each = 1.0F;
    const auto before = support::allocations_so_far();
    cm::optimizer::step(m, adam, {.learning_rate = 0.01F});
    if (support::counts_allocations && now > 2) REQUIRE((support::allocations_so_far() - before).all() == 0);
  }
}

TEST_CASE("a weight without a gradient for hundreds of steps moves by a learning rate in each of its first ones",
          "[optimizer]")
{
  fixture<cm::optimizer::adam> it;
  it.fill();
  const auto first = [&] { return it.everything()[0]; };
  const float before = first();
  const auto step = [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t index = begin; index < end; ++index)
      for (float& each : it.m.gradient(it.weights.slice(index)).span()) each = 1.0F;
    cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.01F});
  };
  for (std::uint32_t now = 0; now < 300; ++now) step(1 + now % (layers - 1), layers);  // others miss steps too
  CHECK(first() == before);
  for (int now = 1; now <= 11; ++now) {
    step(0, layers);
    CHECK(std::fabs(first() - (before - 0.01F * static_cast<float>(now))) < 1e-5F);
  }
}

TEST_CASE("new gradients in the middle of an unfinished update are refused", "[optimizer]")
{
  fixture<cm::optimizer::adam> it;
  it.fill();
  it.differentiate(0);
  std::uint64_t copies = it.memory.copies();
  it.memory.set_plan({.copy = copies + 12, .persistent = true});
  CHECK_THROWS_AS(cm::optimizer::step(it.m, it.kernel), cm::device_error);
  it.memory.set_plan({});
  REQUIRE(it.kernel.progress.reached > 1);
  const std::vector<float> before = it.everything();
  const auto last = it.weights.slice(layers - 1);
  const auto half_done = ContainsSubstring(
      "while an optimizer step is half done (call step again; over one rank a load outside of the iteration ends it "
      "too)");
  CHECK_THROWS_WITH(it.m.gradient(it.weights.slice(0)), half_done);
  CHECK_THROWS_WITH(it.m.gradient(last), half_done);  // it would be added to the one that waits
  CHECK_THROWS_WITH(it.m.acquire<float>(last, cm::gradient_list, cm::access::write, cm::memory_location::host),
                    half_done);
  CHECK_THROWS_WITH(it.m.drop_gradient(last), half_done);
  CHECK_THROWS_WITH(it.m.drop_gradients(), half_done);
  CHECK(it.everything() == before);
  CHECK(it.m.has_gradient(last));
  cm::optimizer::step(it.m, it.kernel);
  CHECK(it.kernel.progress.number == 1);
}

namespace {

/// Takes steps whose copies fail, each one copy later than the last, until `is_enough()`.
template <class Kernel, class IsEnough>
void fail_until(fixture<Kernel>& it, const cm::optimizer::step_options& options, IsEnough is_enough)
{
  for (std::uint64_t copy = 0; !is_enough(); ++copy) {
    it.memory.set_plan({.copy = it.memory.copies() + copy, .persistent = true});
    CHECK_THROWS_AS(cm::optimizer::step(it.m, it.kernel, options), cm::device_error);
  }
  it.memory.set_plan({});
}

}  // namespace

TEST_CASE("a gradient that is dropped behind the decision of a step takes no part in it", "[optimizer]")
{
  const cm::optimizer::step_options options{.learning_rate = 0.1F, .clip = {.norm = 0.5F}};
  std::vector<float> found[2];
  double norms[2] = {};
  for (const bool fails : {false, true}) {
    fixture<cm::optimizer::adam> it;
    it.fill();
    it.differentiate(0);
    if (fails)
      fail_until(it, options, [&] { return it.kernel.progress.decision == cm::optimizer::step_decision::update; });
    REQUIRE(it.kernel.progress.reached == 0);
    it.m.drop_gradient(it.weights.slice(3));
    norms[fails ? 1 : 0] = cm::optimizer::step(it.m, it.kernel, options).norm;
    CHECK(it.kernel.progress.missed.of(3) == 1);
    it.differentiate(1);
    (void)cm::optimizer::step(it.m, it.kernel, options);
    found[fails ? 1 : 0] = it.everything();
  }
  CHECK(norms[0] == norms[1]);
  CHECK(found[0] == found[1]);
}

TEST_CASE("while a step is half done, a step of another optimizer is refused", "[optimizer]")
{
  fixture<cm::optimizer::adam> it;
  cm::optimizer::sgd other{{}, {.masters = false}};
  it.m.use(other);
  it.fill();
  it.differentiate(0);
  fail_until(it, {}, [&] { return it.kernel.progress.reached > 1; });
  const std::vector<float> before = it.everything();
  CHECK_THROWS_WITH(cm::optimizer::step(it.m, other), ContainsSubstring("a step of another optimizer is half done"));
  cm::optimizer::late_updates late{it.m, other};
  CHECK_THROWS_WITH(late.step(), ContainsSubstring("a step of another optimizer is half done"));
  cm::optimizer::early_updates early{it.m, other, 8_KiB};
  CHECK_THROWS_WITH(early.step({.clip = {.norm = 1.0F}}),
                    ContainsSubstring("a step of another optimizer is half done"));
  CHECK(it.everything() == before);
  cm::optimizer::step(it.m, it.kernel);
  CHECK(it.kernel.progress.number == 1);
  it.differentiate(1);
  cm::optimizer::step(it.m, other);
  CHECK(other.progress.number == 1);
}

TEST_CASE("a step whose gradients came anew behind it is refused, unless one was merely not dropped", "[optimizer]")
{
  fixture<cm::optimizer::sgd> it;
  it.fill();
  it.differentiate(0);
  it.kernel.progress.reached = 1;
  CHECK_THROWS_AS(cm::optimizer::step(it.m, it.kernel), cm::usage_error);
  it.kernel.progress.undropped = 1;  // the first weight was updated, and its gradient could not be dropped
  const std::vector<float> before = it.everything();
  cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.1F});
  CHECK_FALSE(it.m.has_gradient(it.weights.slice(0)));
  CHECK(it.everything()[0] == before[0]);
  CHECK(it.everything().back() != before.back());
}

namespace {

/// The masters after a step outside of iterations, which makes them itself, where this copy fails once.
std::vector<float> masters(std::optional<std::uint64_t> failed, std::uint64_t& copies)
{
  any_backend memory{cm::backend::host_arena_options{.device_capacity = 16_KiB, .host_capacity = 256_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  cm::optimizer::adam kernel;
  m.use(kernel);
  const auto weights = m.add_stacked<cm::bf16>(2, {1000}, cm::role::parameter);
  for (std::uint32_t index = 0; index < 2; ++index)
    for (cm::bf16& value : m.acquire(weights.slice(index), cm::access::write).span())
      value = cm::round_to<cm::bf16>(0.5F);
  for (std::uint32_t index = 0; index < 2; ++index)
    for (cm::bf16& value : m.gradient(weights.slice(index)).span()) value = cm::round_to<cm::bf16>(0.25F);
  memory.set_plan({.copy = failed ? std::optional{memory.copies() + *failed} : std::nullopt});
  const std::uint64_t before = memory.copies();
  try {
    cm::optimizer::step(m, kernel);
  } catch (const cm::device_error&) {
    cm::optimizer::step(m, kernel);
  }
  copies = memory.copies() - before;
  std::vector<float> all;
  for (std::uint32_t index = 0; index < 2; ++index)
    for (const float it :
         m.acquire<float>(weights.slice(index), m.list("master"), cm::access::read, cm::memory_location::host).span())
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
  for (std::uint64_t index = 0; index < copies; ++index) {
    CAPTURE(index);
    const bool same = masters(index, ignored) == undisturbed;
    CHECK(same);
  }
}

TEST_CASE("a step with an optimizer that the manager was not given changes nothing", "[optimizer]")
{
  fixture<cm::optimizer::sgd> it;
  it.fill();
  it.differentiate(0);
  cm::optimizer::adam stranger;
  CHECK_THROWS_WITH(cm::optimizer::step(it.m, stranger),
                    ContainsSubstring("an optimizer kernel that the manager was not given (call m.use()"));
  CHECK(stranger.progress.number == 0);
  cm::optimizer::step(it.m, it.kernel);
  CHECK(it.kernel.progress.number == 1);
}

TEST_CASE("a step with a learning rate that is no number, infinite or negative changes nothing and names the rate",
          "[optimizer]")
{
  fixture<cm::optimizer::adam> it;
  it.fill();
  it.differentiate(0);
  const std::vector<float> before = it.everything();
  cm::optimizer::late_updates late{it.m, it.kernel};
  cm::optimizer::early_updates early{it.m, it.kernel, 8_KiB};
  for (const auto& [rate, said] : {std::pair{std::numeric_limits<float>::quiet_NaN(), "a learning rate of nan"},
                                   std::pair{std::numeric_limits<float>::infinity(), "a learning rate of inf"},
                                   std::pair{-1e-3F, "a learning rate of -0.001"}}) {
    const float rates[] = {0.1F, rate};
    for (const cm::optimizer::step_options& options :
         {cm::optimizer::step_options{.learning_rate = rate}, cm::optimizer::step_options{.group_rates = rates}}) {
      CHECK_THROWS_WITH(cm::optimizer::step(it.m, it.kernel, options), ContainsSubstring(said));
      CHECK_THROWS_AS(cm::optimizer::step(it.m, it.kernel, options), cm::usage_error);
      CHECK_THROWS_WITH(late.step(options), ContainsSubstring(said));
      CHECK_THROWS_WITH(early.step(options), ContainsSubstring(said));
    }
    CHECK_THROWS_AS(it.kernel.group(cm::group_id{1}, {.rate_factor = rate}), cm::config_error);
    CHECK_THROWS_AS(it.kernel.group(cm::group_id{1}, {.weight_decay = rate}), cm::config_error);
    CHECK_THROWS_AS(cm::optimizer::sgd{{.weight_decay = rate}}, cm::config_error);
    CHECK_THROWS_AS(cm::optimizer::sgd{{.rate_factor = rate}}, cm::config_error);
  }
  CHECK(it.kernel.progress.number == 0);
  CHECK(it.everything() == before);
  it.kernel.group(cm::group_id{0}, {.rate_factor = 1e30F});
  CHECK_THROWS_WITH(cm::optimizer::step(it.m, it.kernel, {.learning_rate = 1e20F}),
                    ContainsSubstring("a learning rate of 1e+20 and a rate factor of 1e+30"));
  CHECK(it.everything() == before);
  it.kernel.group(cm::group_id{0}, {});
  CHECK(cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.0F}) == cm::optimizer::step_result::updated);
  CHECK(it.kernel.progress.number == 1);
}

TEST_CASE("a kernel is of one manager: a step with it in another, and with a copy of it, changes nothing",
          "[optimizer]")
{
  fixture<cm::optimizer::adam> it, other;
  for (auto* each : {&it, &other}) {
    each->fill();
    each->differentiate(0);
  }
  const std::vector<float> before = it.everything();
  CHECK_THROWS_WITH(cm::optimizer::step(it.m, other.kernel), ContainsSubstring("that another manager was given"));
  cm::optimizer::adam copy = it.kernel;
  CHECK_THROWS_WITH(cm::optimizer::step(it.m, copy), ContainsSubstring("that the manager was not given"));
  CHECK_THROWS_AS(cm::optimizer::late_updates(it.m, copy).step(), cm::usage_error);
  CHECK_THROWS_AS(cm::optimizer::early_updates(it.m, copy, 8_KiB).step(), cm::usage_error);
  CHECK_THROWS_AS(it.m.use(other.kernel), cm::usage_error);
  auto scale = cm::optimizer::loss_scale::fixed(2.0F);
  CHECK_THROWS_WITH(cm::optimizer::step(it.m, it.kernel, {.loss_scale = &scale}),
                    ContainsSubstring("a loss scale that the manager was not given"));
  other.m.use(scale);
  CHECK_THROWS_WITH(cm::optimizer::step(it.m, it.kernel, {.loss_scale = &scale}),
                    ContainsSubstring("a loss scale that another manager was given"));
  CHECK(it.everything() == before);
  CHECK((it.kernel.progress.number == 0 && other.kernel.progress.number == 0));
  cm::optimizer::step(it.m, it.kernel);
  CHECK((it.kernel.progress.number == 1 && other.kernel.progress.number == 0));
  it.kernel = cm::optimizer::adam{{.weight_decay = 0.5F}};  // other settings, of the same manager
  it.differentiate(1);
  CHECK(cm::optimizer::step(it.m, it.kernel) == cm::optimizer::step_result::updated);
}

TEST_CASE("a step after more updates than can be counted changes nothing", "[optimizer]")
{
  fixture<cm::optimizer::adam> it;
  it.fill();
  it.differentiate(0);
  const std::vector<float> before = it.everything();
  for (const std::uint64_t wrong : {UINT64_MAX, UINT64_MAX - 1, cm::optimizer::most_updates}) {
    it.kernel.progress.number = wrong;
    CHECK_THROWS_WITH(cm::optimizer::step(it.m, it.kernel),
                      ContainsSubstring("an optimizer step after " + std::to_string(wrong) + " updates"));
  }
  CHECK(it.everything() == before);
  it.kernel.progress.number = 0;
  CHECK(cm::optimizer::step(it.m, it.kernel) == cm::optimizer::step_result::updated);
}

TEST_CASE("a step after an iteration that named too few micro-batches says so, once", "[optimizer]")
{
  fixture<cm::optimizer::adam> it;
  it.fill();
  {
    auto scope = it.m.iteration(2);
    scope.pass(cm::pass::backward, 1);
    it.differentiate(0);
  }
  const std::vector<float> before = it.everything();
  CHECK_THROWS_WITH(cm::optimizer::step(it.m, it.kernel),
                    ContainsSubstring("an iteration of 2 micro-batches ended after 1 of them"));
  CHECK(it.everything() == before);
  CHECK(cm::optimizer::step(it.m, it.kernel) == cm::optimizer::step_result::updated);
}

TEST_CASE("a rehearsed step updates nothing", "[optimizer]")
{
  fixture<cm::optimizer::adam> it;
  it.fill();
  const std::vector<float> before = it.everything();
  it.m.rehearse([&] {
    it.differentiate(0);
    cm::optimizer::step(it.m, it.kernel);
  });
  CHECK(it.kernel.progress.number == 0);
  CHECK(it.everything() == before);
}

namespace {

/// Weights of a 16-bit type, some of them in a second group, trained without a network.
template <class Element>
struct half_fixture {
  explicit half_fixture(bool in_place = false) : m{memory, {.chunk_bytes = 4_KiB}, support::chosen_gradient{in_place}}
  {
    m.use(kernel);
    for (std::uint32_t index = 0; index < layers; ++index)
      weights.push_back(m.template add<Element>({1000}, cm::role::parameter, cm::group_id{index % 2}));
    m.rehearse([&] { step(0, {}); });
    for (std::uint32_t index = 0; index < layers; ++index) {
      const auto pin = m.acquire(weights[index], cm::access::write);
      for (Element& it : pin.span()) it = cm::round_to<Element>(1.0F + static_cast<float>(index));
    }
  }
  void differentiate(float value, bool measured, float odd_one = 0.0F)
  {
    for (const auto& weight : weights) {
      auto gradient = m.gradient(weight);
      for (Element& it : gradient.span()) it = cm::round_to<Element>(value);
      if (odd_one != 0.0F && !m.rehearsing() && weight.id == weights[3].id)
        gradient.span()[999] = cm::round_to<Element>(odd_one);
      if (measured) m.gradient_done(std::move(gradient));
    }
  }
  cm::optimizer::step_outcome step(float value, const cm::optimizer::step_options& options, bool measured = true,
                                   float odd_one = 0.0F)
  {
    const auto scope = m.iteration();
    differentiate(value, measured, odd_one);
    return cm::optimizer::step(m, kernel, options);
  }
  float value(std::uint32_t which)
  {
    return cm::to_float(m.acquire(weights[which], cm::access::read, cm::memory_location::host).span()[999]);
  }
  float master(std::uint32_t which)
  {
    return m.template acquire<float>(weights[which], m.list("master"), cm::access::read, cm::memory_location::host)
        .span()[999];
  }
  std::vector<float> masters()
  {
    std::vector<float> all;
    for (std::uint32_t index = 0; index < layers; ++index) all.push_back(master(index));
    return all;
  }

  cm::optimizer::sgd kernel{{.momentum = 0.0F}};
  any_backend memory{cm::backend::host_arena_options{.device_capacity = 12_KiB, .host_capacity = 128_KiB}};
  manager m;
  std::vector<cm::tensor<Element>> weights;
};

}  // namespace

TEST_CASE("gradients are done in each micro-batch, in whatever order, and their norm is that of the whole batch",
          "[optimizer]")
{
  // 4 micro-batches of gradients 1, 2, 3 and 4: 10 in each of 6 * 1000 elements
  const double norm = 10 * std::sqrt(6000.0);
  for (const bool all_forward_first : {false, true})
    for (const bool by_handle : {false, true})
      for (std::uint32_t step = 0; step < 3; ++step) {
        INFO(all_forward_first << by_handle << step);
        fixture<cm::optimizer::sgd> it;
        it.fill();
        auto scope = it.m.iteration(4);
        for (std::uint32_t batch = 0; all_forward_first && batch < 4; ++batch) scope.pass(cm::pass::forward, batch);
        for (std::uint32_t batch = 0; batch < 4; ++batch) {
          scope.pass(cm::pass::backward, batch);
          for (std::uint32_t index = layers; index-- > 0;) {
            auto gradient = it.m.gradient(it.weights.slice(index));
            const float beta = gradient.beta();
            CHECK(beta == (batch == 0 ? 0.0F : 1.0F));
            for (float& x : gradient.span()) x = (beta == 0 ? 0.0F : x) + static_cast<float>(batch + 1);
            if (!by_handle) {
              it.m.gradient_done(std::move(gradient));
            } else {
              gradient.release();
              it.m.gradient_done(it.weights.slice(index));
            }
          }
        }
        const auto outcome = cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.1F, .clip = {.norm = 1.0F}});
        CHECK(std::abs(outcome.norm - norm) < 1e-4);
      }
}

TEST_CASE("a parameter that no optimizer can update is refused when both are declared, in whatever order",
          "[optimizer]")
{
  any_backend memory{support::adversarial_options{.device_capacity = 12_KiB, .host_capacity = 256_KiB}};
  cm::optimizer::sgd kernel;
  const auto sentence = ContainsSubstring(
      "tensor.1 is a parameter of int32 in a manager with an optimizer, which updates float32, "
      "bfloat16 and float16 (declare it with role::frozen or role::buffer)");
  {
    manager m{memory, {.chunk_bytes = 4_KiB}};
    (void)m.add<float>({4}, cm::role::parameter);
    (void)m.add<std::int32_t>({4}, cm::role::parameter);  // a trainer may update it by itself
    CHECK_THROWS_WITH(m.use(kernel), sentence);
    CHECK_THROWS_AS(m.list("sgd/momentum"), cm::usage_error);  // nothing of it was added
  }
  manager m{memory, {.chunk_bytes = 4_KiB}};
  (void)m.add<float>({4}, cm::role::parameter);
  m.use(kernel);  // the refusal did not tie it
  CHECK_THROWS_WITH(m.add<std::int32_t>({4}, cm::role::parameter), sentence);
  cm::optimizer::sgd another;
  CHECK_THROWS_WITH(m.use(another),
                    ContainsSubstring("two registered states have one name, sgd/updates (use one object "
                                      "of each kind: its groups may have other options)"));
  (void)m.add<std::int32_t>({4}, cm::role::frozen);
  CHECK(m.add<cm::bf16>({4}, cm::role::parameter).id == cm::tensor_id{2});
  CHECK_THROWS_WITH(m.list("adam/momentum"), ContainsSubstring("(there are value, gradient, sgd/momentum and master)"));
}

TEST_CASE("a step before the last micro-batch is refused, and can be taken behind it", "[optimizer]")
{
  fixture<cm::optimizer::adam> it;
  it.fill();
  const std::vector<float> before = it.everything();
  {
    auto scope = it.m.iteration(3);
    for (std::uint32_t batch = 0; batch < 3; ++batch) {
      CHECK_THROWS_WITH(cm::optimizer::step(it.m, it.kernel),
                        ContainsSubstring(batch == 0 ? "none of 6 parameters has a gradient"
                                                     : "an optimizer step after " + std::to_string(batch) +
                                                           " of the 3 micro-batches of an iteration"));
      scope.pass(cm::pass::forward, batch);
      it.differentiate(batch);
    }
    CHECK(it.kernel.progress.number == 0);
    CHECK(it.everything() == before);
    cm::optimizer::step(it.m, it.kernel);
  }
  CHECK(it.kernel.progress.number == 1);
  CHECK(it.everything() != before);
  {
    auto cut_short = it.m.iteration(2);
    it.differentiate(7);
    CHECK_THROWS_AS(cut_short.end(), cm::usage_error);  // said once: what is there may be used, or dropped
  }
  cm::optimizer::step(it.m, it.kernel);
  CHECK(it.kernel.progress.number == 2);
  it.differentiate(8);
  auto next = it.m.iteration(2);
  cm::optimizer::step(it.m, it.kernel);  // of the gradients before, as where weights have versions
  it.differentiate(9);
  it.m.drop_gradients();
  for (const std::uint32_t batch : {0U, 1U}) next.pass(cm::pass::forward, batch);
  CHECK(it.kernel.progress.number == 3);
}

TEST_CASE("a step for which there is no gradient is refused, and a second one for one backward pass", "[optimizer]")
{
  fixture<cm::optimizer::adam> it;
  it.fill();
  cm::optimizer::late_updates<manager, cm::optimizer::adam> late{it.m, it.kernel};
  cm::optimizer::early_updates<manager, cm::optimizer::adam> early{it.m, it.kernel, 64_KiB};
  const auto refused = [&] {
    const std::vector<float> before = it.everything();
    const std::uint64_t number = it.kernel.progress.number;
    for (const bool has_clip : {false, true}) {
      const cm::optimizer::step_options options{.clip = {.norm = has_clip ? 1.0F : 0.0F}};
      const auto sentence = ContainsSubstring("an optimizer step, and none of 6 parameters has a gradient");
      CHECK_THROWS_WITH(cm::optimizer::step(it.m, it.kernel, options), sentence);
      CHECK_THROWS_WITH(late.step(options), sentence);
      CHECK_THROWS_WITH(early.step(options), sentence);
    }
    CHECK(it.everything() == before);
    CHECK(it.kernel.progress.number == number);
  };
  refused();
  it.differentiate(1, 3);
  cm::optimizer::step(it.m, it.kernel);  // one of six has none
  refused();
  it.differentiate(2);
  late.step();
  refused();
  it.differentiate(3);
  early.step({.clip = {.norm = 1.0F}});
  refused();
  it.differentiate(4);
  it.m.drop_gradients();
  refused();
}

TEST_CASE("a step has learning rates by group", "[optimizer]")
{
  half_fixture<cm::bf16> it;
  const float rates[] = {0.5F, 0.25F};
  CHECK(it.step(1.0F, {.group_rates = rates}) == cm::optimizer::step_result::updated);
  CHECK(it.masters() == std::vector<float>{0.5F, 1.75F, 2.5F, 3.75F, 4.5F, 5.75F});
  CHECK_THROWS_AS(it.step(1.0F, {.group_rates = std::span{rates}.first(1)}), cm::usage_error);
  CHECK_THROWS_AS(cm::optimizer::step(it.m, it.kernel, {.clip = {.norm = -1.0F}}), cm::usage_error);
}

namespace {

/// Beside an sgd of its manager.
struct second_sgd : cm::optimizer::sgd {
  using basic_sgd::basic_sgd;
  static constexpr std::string_view name = "second sgd";
};

}  // namespace

TEST_CASE("an optimizer without masters leaves weights with masters alone", "[optimizer]")
{
  half_fixture<cm::bf16> it;
  it.step(1.0F, {.learning_rate = 0.5F});
  it.differentiate(1.0F, true);
  second_sgd other{{.momentum = 0.0F}, {.masters = false}};
  it.m.use(other);
  CHECK_THROWS_WITH(cm::optimizer::step(it.m, other, {.learning_rate = 0.5F}), ContainsSubstring("without masters"));
  CHECK((it.value(0) == 0.5F && it.master(0) == 0.5F && it.m.has_gradient(it.weights[0])));
  cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.5F});
  CHECK(it.master(0) == 0.0F);
}

TEST_CASE("a step says the norm and clips by it, measured before or not", "[optimizer]")
{
  for (const bool measured : {false, true}) {
    half_fixture<cm::bf16> it;
    auto scale = cm::optimizer::loss_scale::fixed(8.0F);
    it.m.use(scale);
    const double elements = 1000.0 * layers;
    const auto outcome = it.step(8.0F, {.learning_rate = 1.0F, .clip = {.norm = 1.0F}, .loss_scale = &scale}, measured);
    CHECK(outcome.norm == Catch::Approx(std::sqrt(elements)));
    CHECK(it.master(0) == Catch::Approx(1.0 - 1.0 / std::sqrt(elements)));
    CHECK(
        it.step(8.0F, {.clip = {.norm = 1.0F, .order = cm::optimizer::norm_order::l1}, .loss_scale = &scale}, measured)
            .norm == elements);
    CHECK(it.step(8.0F, {.clip = {.norm = 1.0F, .order = cm::optimizer::norm_order::linf}, .loss_scale = &scale},
                  measured)
              .norm == 1.0);
    const float before = it.master(0);
    CHECK(it.step(8.0F, {.learning_rate = 1.0F, .clip = {.value = 0.25F}, .skip_nonfinite = false}, measured).norm ==
          0.0);
    CHECK(it.master(0) == before - 0.25F);
    CHECK(scale.updates() == 3);
  }
}

TEST_CASE("a step with an infinite gradient changes nothing but the loss scale", "[optimizer]")
{
  const bool in_place = GENERATE(false, true);
  for (const bool measured : {false, true}) {
    half_fixture<cm::fp16> it{in_place};
    auto scale = cm::optimizer::loss_scale::dynamic({.initial = 1024.0F});
    it.m.use(scale);
    it.step(1024.0F, {.learning_rate = 0.5F, .loss_scale = &scale}, measured);
    const std::vector<float> before = it.masters();
    CHECK(it.step(1.0F, {.loss_scale = &scale}, measured, 1e30F) == cm::optimizer::step_result::skipped_nonfinite);
    CHECK(it.kernel.progress.number == 1);
    CHECK((scale.scale() == 512.0F && scale.skips() == 1));
    CHECK(it.masters() == before);
    CHECK(it.value(3) == before[3]);
    CHECK_FALSE(it.m.has_gradient(it.weights[0]));
    it.step(512.0F, {.learning_rate = 0.5F, .loss_scale = &scale}, measured);
    CHECK(it.master(3) == before[3] - 0.5F);
    CHECK(it.step(1.0F, {}, measured, 1e30F) == cm::optimizer::step_result::skipped_nonfinite);
    CHECK(it.step(1.0F, {.skip_nonfinite = false}, measured, 1e30F) == cm::optimizer::step_result::updated);
    CHECK(std::isinf(it.master(3)));
  }
}

TEST_CASE("clipping by a norm that is not finite gives what PyTorch's clip_grad_norm_ gives", "[optimizer]")
{
  constexpr float infinite = std::numeric_limits<float>::infinity(),
                  no_number = std::numeric_limits<float>::quiet_NaN();
  // gradients, and weights of 1 behind SGD with a rate of 0.1: NaN stands for any
  const std::vector<std::pair<std::vector<float>, std::vector<float>>> rows{
      {{infinite, 1.0F}, {no_number, 1.0F}},
      {{-infinite, 1.0F}, {no_number, 1.0F}},
      {{no_number, 1.0F}, {no_number, no_number}},
      {{no_number, infinite}, {no_number, no_number}},
      {{0.0F, 0.5F}, {1.0F, 1.0F - 0.1F * 0.5F}}};
  for (const auto& [gradient, expected] : rows)
    for (const auto order :
         {cm::optimizer::norm_order::l1, cm::optimizer::norm_order::l2, cm::optimizer::norm_order::linf})
      for (const bool measured : {false, true}) {
        any_backend memory{support::adversarial_options{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
        manager m{memory, {.chunk_bytes = 4_KiB}};
        cm::optimizer::sgd sgd{{.momentum = 0.0F}};
        m.use(sgd);
        const auto weight = m.add<float>({2}, cm::role::parameter);
        for (float& it : m.acquire(weight, cm::access::write).span()) it = 1;
        auto pin = m.gradient(weight);
        std::copy(gradient.begin(), gradient.end(), pin.span().begin());
        if (measured)
          m.gradient_done(std::move(pin));
        else
          pin.release();
        const auto done = cm::optimizer::step(
            m, sgd, {.learning_rate = 0.1F, .clip = {.norm = 1.0F, .order = order}, .skip_nonfinite = false});
        CHECK(done == cm::optimizer::step_result::updated);
        const auto found = m.acquire(weight, cm::access::read);
        for (std::size_t index = 0; index < 2; ++index) {
          if (std::isnan(expected[index]))
            CHECK(std::isnan(found.span()[index]));
          else
            CHECK(found.span()[index] == expected[index]);
        }
      }
}

TEST_CASE("a gradient that a loss scale below 1 makes infinite skips the step", "[optimizer]")
{
  half_fixture<cm::bf16> it;
  auto scale = cm::optimizer::loss_scale::dynamic({.initial = 0x1p-10F, .smallest = 0x1p-12F, .most_skips = 2});
  it.m.use(scale);
  CHECK(it.step(0x1p-10F, {.loss_scale = &scale}, false) == cm::optimizer::step_result::updated);
  const std::vector<float> before = it.masters();
  for (int now = 0; now < 4; ++now)
    CHECK(it.step(1.0F, {.loss_scale = &scale}, now % 2 == 0, 3e38F) == cm::optimizer::step_result::skipped_nonfinite);
  CHECK(scale.scale() == 0x1p-12F);
  CHECK_THROWS_WITH(it.step(1.0F, {.loss_scale = &scale}, false, 3e38F),
                    Catch::Matchers::ContainsSubstring("the last 2 steps were skipped at the smallest loss scale"));
  CHECK(it.masters() == before);
  CHECK(it.kernel.progress.number == 1);
}

TEST_CASE("a rate whose product with the decay is infinite changes nothing", "[optimizer]")
{
  fixture<cm::optimizer::adam> it;
  it.fill();
  it.kernel.group(cm::group_id{0}, {.weight_decay = 1e38F});
  it.differentiate(0);
  const std::vector<float> before = it.everything();
  CHECK_THROWS_WITH(cm::optimizer::step(it.m, it.kernel, {.learning_rate = 1e10F}),
                    Catch::Matchers::ContainsSubstring("and a weight decay of 1e+38, whose product is too large"));
  CHECK(it.everything() == before);
}

TEST_CASE("gradients that were made anew in the middle of a step are measured anew", "[optimizer]")
{
  fixture<cm::optimizer::sgd> it;
  it.fill();
  const auto gradients = [&](float value, std::uint32_t from) {
    for (std::uint32_t index = from; index < layers; ++index)
      for (float& each : it.m.gradient(it.weights.slice(index)).span()) each = value;
  };
  const cm::optimizer::step_options options{.learning_rate = 1.0F,
                                            .clip = {.norm = 1.0F, .order = cm::optimizer::norm_order::linf}};
  gradients(4.0F, 1);  // the first weight has none, and is done with at once
  for (std::uint64_t k = 1; it.kernel.progress.reached == 0 && k < 100; ++k) {
    it.memory.set_plan({.copy = it.memory.copies() + k, .persistent = true});
    CHECK_THROWS_AS(cm::optimizer::step(it.m, it.kernel, options), cm::device_error);
  }
  it.memory.set_plan({});
  REQUIRE(it.kernel.progress.reached < layers - 1);
  const std::uint32_t next = it.kernel.progress.reached;
  it.m.drop_gradients();
  gradients(0.5F, next);
  CHECK(cm::optimizer::step(it.m, it.kernel, options).norm == 0.5);
}

TEST_CASE("a skip that is half done takes and drops no gradient, and the next call finishes it", "[optimizer]")
{
  half_fixture<cm::bf16> it{true};
  const cm::optimizer::step_options options{.skip_nonfinite = true};
  for (int step = 0; step < 3; ++step) (void)it.step(0.5F, options);
  const std::vector<float> before = it.masters();
  const auto scope = it.m.iteration();
  it.differentiate(0.5F, true, std::numeric_limits<float>::infinity());
  for (std::uint64_t copy = 0; it.kernel.progress.reached == 0; ++copy) {
    it.memory.set_plan({.copy = it.memory.copies() + copy, .persistent = true});
    CHECK_THROWS_AS(cm::optimizer::step(it.m, it.kernel, options), cm::device_error);
  }
  it.memory.set_plan({});
  REQUIRE(it.kernel.progress.decision == cm::optimizer::step_decision::skip);
  REQUIRE(it.kernel.progress.reached < layers);
  const auto half_done = ContainsSubstring("while an optimizer step is half done");
  for (const auto& weight : it.weights) {
    CHECK_THROWS_WITH(it.m.gradient(weight), half_done);
    CHECK_THROWS_WITH(it.m.drop_gradient(weight), half_done);
  }
  CHECK(cm::optimizer::step(it.m, it.kernel, options) == cm::optimizer::step_result::skipped_nonfinite);
  CHECK(it.masters() == before);
  CHECK(it.kernel.progress.number == 3);
  CHECK(it.kernel.progress.missed.of(0) == 0);
}

TEST_CASE("steps in 16 bits that repeat allocate nothing and follow their record", "[optimizer]")
{
  half_fixture<cm::bf16> it{GENERATE(false, true)};
  it.step(1.0F, {.clip = {.norm = 1.0F}}, true);
  it.step(1.0F, {.clip = {.norm = 1.0F}}, true);
  const auto before = support::allocations_so_far();
  const cm::report start = it.m.report();
  for (int step = 0; step < 10; ++step) it.step(1.0F, {.clip = {.norm = 1.0F}}, true);
  const cm::report end = it.m.report();
  if (support::counts_allocations) CHECK((support::allocations_so_far() - before).all() == 0);
  CHECK(end.written_back > start.written_back);  // gradients on their way to the optimizer
  CHECK(end.divergences == 0);
  CHECK(end.abandoned_plans + end.skipped_moves == 0);
  CHECK(end.waits.other == 0);
}

TEST_CASE("the profile of a loop that updates at the top of its iteration is followed", "[optimizer]")
{
  using trainer = fixture<cm::optimizer::adam>;
  const auto train = [](trainer& it, int steps) {
    it.fill();
    it.differentiate(0);
    for (int step = 1; step <= steps; ++step) {
      const auto scope = it.m.iteration();
      cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.1F});
      it.differentiate(static_cast<std::uint64_t>(step));
    }
  };
  trainer first, second;
  train(first, 4);
  std::stringstream file;
  cm::profile_text::write(file, *first.m.profile());
  second.m.use_profile(cm::profile_text::read(file));
  train(second, 1);
  CHECK(second.m.plan() == first.m.plan());  // where it was recorded, it has none yet
  CHECK(second.m.report().divergences == 0);
}

namespace {

constexpr cm::optimizer::step_options clipped{.learning_rate = 0.1F, .clip = {.norm = 1.0F}};

/// What all gradients of a fixture measure, tensor by tensor in the order of declaration.
template <class Kernel>
cm::gradient_measure measure_all(fixture<Kernel>& it)
{
  cm::gradient_measure all;
  for (std::uint32_t index = 0; index < layers; ++index)
    if (it.m.has_gradient(it.weights.slice(index)))
      all.add(
          cm::measure(std::span<const float>{it.m.template acquire<float>(it.weights.slice(index), cm::gradient_list,
                                                                          cm::access::read, cm::memory_location::host)
                                                 .span()}));
  return all;
}
cm::gradient_measure measure_of_norm(double norm)
{
  cm::gradient_measure all;
  all.squares = norm * norm;
  return all;
}

}  // namespace

TEST_CASE("a step that is given the true measure of all gradients is the step that takes it", "[optimizer]")
{
  fixture<cm::optimizer::adam> own, told;
  own.fill();
  told.fill();
  for (std::uint64_t step = 0; step < 3; ++step) {
    own.differentiate(step, 2);
    told.differentiate(step, 2);
    told.m.updates().gradients().keep_measure_of_all(measure_all(told));
    const auto wanted = cm::optimizer::step(own.m, own.kernel, clipped);
    const auto found = cm::optimizer::step(told.m, told.kernel, clipped);
    CHECK(wanted.norm > 1.0);  // it clips
    CHECK(found.norm == wanted.norm);
    CHECK(found.result == wanted.result);
  }
  CHECK(told.everything() == own.everything());
}

TEST_CASE("a step decides by the measure of all gradients that it is given, and by its own again in the next one",
          "[optimizer]")
{
  fixture<cm::optimizer::sgd> far, near, plain;
  for (auto* it : {&far, &near, &plain}) it->fill(), it->differentiate(0);
  far.m.updates().gradients().keep_measure_of_all(measure_of_norm(1024.0));
  near.m.updates().gradients().keep_measure_of_all(measure_of_norm(0.5));
  CHECK(cm::optimizer::step(far.m, far.kernel, clipped).norm == 1024.0);
  CHECK(cm::optimizer::step(near.m, near.kernel, clipped).norm == 0.5);
  cm::optimizer::step(plain.m, plain.kernel, {.learning_rate = 0.1F});
  CHECK(near.everything() == plain.everything());  // its own norm would have clipped it
  CHECK(far.everything() != plain.everything());

  const std::vector<float> before = near.everything();
  near.differentiate(1);
  plain.differentiate(1);
  cm::gradient_measure broken;
  broken.finite = false;
  near.m.updates().gradients().keep_measure_of_all(broken);
  CHECK(cm::optimizer::step(near.m, near.kernel, clipped).result == cm::optimizer::step_result::skipped_nonfinite);
  CHECK(near.everything() == before);
  for (std::uint32_t index = 0; index < layers; ++index) CHECK(!near.m.has_gradient(near.weights.slice(index)));
  near.differentiate(1);
  CHECK(cm::optimizer::step(near.m, near.kernel, clipped).norm ==
        cm::optimizer::step(plain.m, plain.kernel, clipped).norm);
  CHECK(near.everything() == plain.everything());
}

TEST_CASE("a step that fails goes on by the measure that it was given, whichever copy it was", "[optimizer]")
{
  const auto train = [](fixture<cm::optimizer::adam>& it, std::uint64_t fails) {
    it.fill();
    it.differentiate(0);
    it.m.updates().gradients().keep_measure_of_all(measure_of_norm(1024.0));
    const std::uint64_t before = it.memory.copies();
    if (fails != 0) it.memory.set_plan({.copy = fails});
    for (bool done = false; !done;) try {
        const double norm = cm::optimizer::step(it.m, it.kernel, clipped).norm;
        CHECK(norm == 1024.0);
        done = true;
      } catch (const cm::device_error&) {
        CHECK(it.memory.copies() > fails);
      }
    CHECK(it.kernel.progress.number == 1);
    it.memory.set_plan({});
    return std::pair{before, it.memory.copies()};
  };
  fixture<cm::optimizer::adam> whole;
  const auto [begin, end] = train(whole, 0);
  const std::vector<float> expected = whole.everything();
  REQUIRE(end > begin);
  for (std::uint64_t copy = begin; copy < end; ++copy) {
    INFO("copy " << copy);
    fixture<cm::optimizer::adam> it;
    train(it, copy);
    CHECK(it.everything() == expected);
  }
}

TEST_CASE("a measure of gradients that others have decides where the manager has no gradient, or no parameter",
          "[optimizer]")
{
  fixture<cm::optimizer::sgd> it;
  it.fill();
  const std::vector<float> before = it.everything();
  it.m.updates().gradients().keep_measure_of_all(measure_of_norm(3.0));
  CHECK(cm::optimizer::step(it.m, it.kernel, clipped).norm == 3.0);
  CHECK(it.kernel.progress.number == 1);
  CHECK(it.everything() == before);

  any_backend memory{support::adversarial_options{.device_capacity = 12_KiB, .host_capacity = 256_KiB}};
  manager none{memory, {.chunk_bytes = 4_KiB}};
  cm::optimizer::sgd kernel;
  none.use(kernel);
  cm::gradient_measure broken;
  broken.finite = false;
  none.updates().gradients().keep_measure_of_all(broken);
  CHECK(cm::optimizer::step(none, kernel, clipped).result == cm::optimizer::step_result::skipped_nonfinite);
  CHECK(kernel.progress.number == 0);
  none.updates().gradients().keep_measure_of_all(measure_of_norm(3.0));
  CHECK(cm::optimizer::step(none, kernel, clipped).norm == 3.0);
  CHECK(kernel.progress.number == 1);
}

TEST_CASE("who watches changes hears the begin and the end of each update, and of each norm", "[optimizer]")
{
  struct heard {
    int begun = 0;
    int open = 0;
  };
  fixture<cm::optimizer::adam> it;
  it.fill();
  heard all;
  it.m.content().changes().begin([](void*, cm::chunk_id) noexcept {},
                                 [](void* context, bool begins) noexcept {
                                   static_cast<heard*>(context)->begun += begins ? 1 : 0;
                                   static_cast<heard*>(context)->open += begins ? 1 : -1;
                                 },
                                 &all);
  it.differentiate(0);
  cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.1F, .skip_nonfinite = false});
  CHECK(std::exchange(all.begun, 0) == layers);
  it.differentiate(1);
  cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.1F, .clip = {.norm = 1.0F}});
  CHECK(std::exchange(all.begun, 0) == 2 * layers);
  it.differentiate(2);
  {
    cm::optimizer::late_updates late{it.m, it.kernel};
    (void)late.step({.learning_rate = 0.1F, .skip_nonfinite = false});
    CHECK(all.begun == 0);
    late.finish();
    CHECK(std::exchange(all.begun, 0) == layers);
  }
  CHECK(all.open == 0);
}

}  // namespace step_test
