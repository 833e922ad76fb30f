// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/early_updates.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/count_allocations.hpp>
#include <support/oracles/dice.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace early_updates_test {

namespace cm = chunkmem;
using namespace cm::literals;
using cm::optimizer::early_updates;
using cm::optimizer::step_result;
using support::any_backend;
using support::chosen_gradient;

namespace {

constexpr std::uint32_t count = 6;
constexpr std::uint64_t elements = 1900;

/// Weights with the gradients of a test; updates at once, or early with this many bytes to undo them.
template <class Kernel, class Element, bool InPlace = false>
struct training {
  using manager = cm::manager<any_backend, chosen_gradient>;
  using element_type = Element;

  explicit training(std::optional<cm::bytes> undo, bool rehearses = false, cm::bytes device = 24_KiB,
                    cm::bytes host = 1_MiB)
      : memory{cm::backend::host_arena_options{.device_capacity = device, .host_capacity = host}}
  {
    m.use(kernel);
    weights = m.template add_stacked<Element>(count, {elements}, cm::role::parameter);
    if (undo) early.emplace(m, kernel, *undo);
    if (rehearses) m.rehearse([&] { step(0.1F); });
    for (std::uint32_t index = 0; index < count; ++index)
      for (Element& it : m.acquire(weights.slice(index), cm::access::write).span())
        it = cm::round_to<Element>(0.5F + 0.1F * static_cast<float>(index));
  }
  void differentiate(float size, std::uint32_t spoilt = count)
  {
    for (std::uint32_t index = count; index-- > 0;) {
      auto weight = m.acquire(weights.slice(index), cm::access::read);
      // a weight that is not what it should be shows in what follows
      const float seen = m.rehearsing() ? 0.0F : cm::to_float(weight.span()[7]);
      auto gradient = m.gradient(std::move(weight));
      for (std::size_t i = 0; i < gradient.span().size(); ++i)
        gradient.span()[i] = cm::round_to<Element>(size * (static_cast<float>((i + index) % 5) + 0.1F * seen));
      if (index == spoilt && !m.rehearsing())
        gradient.span()[7] = cm::round_to<Element>(std::numeric_limits<float>::infinity());
      if (index % 2 == 0) m.gradient_done(std::move(gradient));
    }
  }
  cm::optimizer::step_outcome update()
  {
    const cm::optimizer::step_options options{.learning_rate = 0.01F, .clip = {.norm = 10.0F}, .seed = 3};
    return early ? early->step(options) : cm::optimizer::step(m, kernel, options);
  }
  cm::optimizer::step_outcome step(float size, std::uint32_t spoilt = count)
  {
    const auto scope = m.iteration();
    differentiate(size, spoilt);
    return update();
  }
  std::vector<float> everything()
  {
    std::vector<float> all;
    for (std::uint32_t index = 0; index < count; ++index) {
      for (const Element& it : m.acquire(weights.slice(index), cm::access::read, cm::memory_location::host).span())
        all.push_back(cm::to_float(it));
      m.for_each_list([&](cm::list_id list, const cm::list_spec&) {
        if (!m.is_in(weights.slice(index), list)) return;
        if (!m.is_filled(weights.slice(index), list)) return all.push_back(-77);
        for (const float it :
             m.template acquire<float>(weights.slice(index), list, cm::access::read, cm::memory_location::host).span())
          all.push_back(it);
      });
    }
    all.push_back(static_cast<float>(kernel.progress.number));
    return all;
  }

  Kernel kernel;
  any_backend memory;
  manager m{memory, {.chunk_bytes = 4_KiB}, chosen_gradient{InPlace}};
  cm::stacked<Element> weights;
  std::optional<early_updates<manager, Kernel>> early;
};

/// Leases of 4 KiB, until the host has no room for one.
template <class Manager>
auto fill_host(Manager& m)
{
  std::vector<decltype(m.lease(cm::tier::host, 4_KiB))> all;
  try {
    for (;;) all.push_back(m.lease(cm::tier::host, 4_KiB));
  } catch (const cm::out_of_memory&) {
    return all;
  }
}

using cm::optimizer::adam;
using cm::optimizer::sgd;
using single = training<adam, float>;
using separate = training<sgd, cm::bf16>;
using in_place = training<adam, cm::bf16, true>;
constexpr float small = 0.01F, large = 10.0F;

}  // namespace

TEMPLATE_TEST_CASE("early updates give the bits of steps, whatever the norm says in the end", "[optimizer]", single,
                   separate, in_place)
{
  for (const cm::bytes undo : {0_B, 30_KiB, 80_KiB, 400_KiB})
    for (std::uint64_t seed = 1; seed <= (support::sanitized ? 2U : 4U); ++seed) {  // one in two is rehearsed
      CAPTURE(undo.count(), seed);
      TestType plain{std::nullopt}, early{undo, seed % 2 == 0};
      support::dice chance{seed};
      for (int now = 0; now < 16; ++now) {
        const float size = chance.below(3) == 0 ? large : small;
        const std::uint32_t spoilt = chance.below(4) == 0 ? chance.below(count) : count;
        const auto wanted = plain.step(size, spoilt);
        const auto seen = early.step(size, spoilt);
        CHECK(wanted.result == seen.result);
        const bool same = wanted.norm == seen.norm || spoilt != count;
        CHECK(same);
      }
      const bool same = plain.everything() == early.everything();
      CHECK(same);
    }
}

TEMPLATE_TEST_CASE("as many are updated early as can be undone, and none before its states are filled", "[optimizer]",
                   single, separate, in_place)
{
  const std::uint64_t each =
      elements * (sizeof(typename TestType::element_type) + TestType{std::nullopt}.kernel.lists().size() * 4 -
                  (std::is_same_v<typename TestType::element_type, float> ? 4 : 0));
  for (std::size_t fit = 0; fit <= count; ++fit) {
    TestType it{cm::align_up(cm::bytes{each * fit}, 256_B)};
    it.step(small);
    CHECK(it.early->early() == 0);
    it.step(small);
    CHECK(it.early->early() == fit);
    it.step(large);
    CHECK(it.early->early() == 0);
    it.step(small);
    CHECK(it.early->early() == fit);
    CHECK(it.step(small, 1) == step_result::skipped_nonfinite);
    CHECK(it.early->early() == 0);
  }
}

TEMPLATE_TEST_CASE("early updates repeat: they follow their record and allocate nothing", "[optimizer]", single,
                   separate, in_place)
{
  for (const bool rehearses : {false, true}) {
    TestType it{80_KiB, rehearses};
    for (int now = 0; now < 4; ++now) it.step(small);
    const auto before = support::allocations_so_far();
    const cm::report start = it.m.report();
    for (int now = 0; now < 10; ++now) it.step(small);
    const cm::report end = it.m.report();
    if (support::counts_allocations) CHECK((support::allocations_so_far() - before).all() == 0);
    CHECK(end.divergences == start.divergences);
    CHECK(end.abandoned_plans == start.abandoned_plans);
    CHECK(end.waits.other == 0);
  }
}

TEMPLATE_TEST_CASE("whichever copy fails in an early step, the next call finishes it with the same bits", "[optimizer]",
                   single, separate, in_place)
{
  for (const float last : {small, large, 0.0F}) {  // kept, undone, and undone for an infinity
    const std::uint32_t spoilt = last == 0.0F ? 0 : count;
    TestType plain{std::nullopt};
    for (int now = 0; now < 4; ++now) now == 2 ? plain.step(last, spoilt) : plain.step(small);
    const auto expected = plain.everything();
    std::uint64_t failures = 0, guesses = 0;
    for (std::uint64_t k = 0;; ++k) {
      CAPTURE(last, k);
      TestType it{80_KiB, false, 128_KiB};  // gradients stay on the device until they are wanted
      it.step(small);
      it.step(small);
      bool failed = false;
      it.differentiate(last, spoilt);  // outside of an iteration copies come one by one, when they are wanted
      it.memory.set_plan({.copy = it.memory.copies() + k, .persistent = true});
      try {
        it.update();
      } catch (const cm::device_error&) {
        failed = true;
      }
      it.memory.set_plan({});
      if (!failed) break;
      if (it.kernel.progress.decision == cm::optimizer::step_decision::guessed) {
        ++guesses;
        CHECK_THROWS_AS(cm::optimizer::step(it.m, it.kernel), cm::usage_error);
      }
      it.update();
      it.step(small);
      ++failures;
      const bool same = it.everything() == expected;
      REQUIRE(same);
    }
    CHECK(failures > 3);
    CHECK(guesses >= count / 2);
  }
}

TEMPLATE_TEST_CASE("a gradient that comes between two tries of an early step is of the step, if nothing is updated yet",
                   "[optimizer]", single, separate)
{
  const auto differentiate_first = [](TestType& it) {
    const auto gradient = it.m.gradient(it.weights.slice(0));
    for (auto& each : gradient.span()) each = cm::round_to<typename TestType::element_type>(0.03F);
  };
  const auto differentiate_others = [](TestType& it) {
    for (std::uint32_t index = count; index-- > 1;)
      for (auto& each : it.m.gradient(it.weights.slice(index)).span())
        each = cm::round_to<typename TestType::element_type>(0.02F);
  };
  TestType plain{std::nullopt};
  plain.step(small), plain.step(small);
  differentiate_others(plain), differentiate_first(plain);
  plain.update();
  const auto expected = plain.everything();
  std::uint32_t joined = 0;
  for (std::uint64_t k = 0;; ++k) {
    CAPTURE(k);
    TestType it{80_KiB, false, 128_KiB};
    it.step(small), it.step(small);
    differentiate_others(it);
    it.memory.set_plan({.copy = it.memory.copies() + k, .persistent = true});
    bool failed = false;
    try {
      it.update();
    } catch (const cm::device_error&) {
      failed = true;
    }
    it.memory.set_plan({});
    if (!failed) break;
    if (it.kernel.progress.decision != cm::optimizer::step_decision::guessed) continue;
    try {
      differentiate_first(it);
    } catch (const cm::usage_error&) {
      continue;  // some parameter is updated
    }
    it.update();
    ++joined;
    const bool same = it.everything() == expected;
    REQUIRE(same);
  }
  CHECK(joined > 0);
}

TEMPLATE_TEST_CASE("a half-done early step takes no other options, and finishes with its own", "[optimizer]", single,
                   separate, in_place)
{
  using Catch::Matchers::ContainsSubstring;
  TestType plain{std::nullopt};
  for (int now = 0; now < 3; ++now) plain.step(small);
  TestType it{80_KiB, false, 128_KiB};
  it.step(small);
  it.step(small);
  it.differentiate(small);
  it.memory.set_plan({.copy = it.memory.copies() + 3, .persistent = true});
  CHECK_THROWS_AS(it.update(), cm::device_error);
  it.memory.set_plan({});
  REQUIRE(it.kernel.progress.decision == cm::optimizer::step_decision::guessed);
  const cm::optimizer::step_options asked{.learning_rate = 0.01F, .clip = {.norm = 10.0F}, .seed = 3};
  const float rates[] = {0.01F};
  cm::optimizer::loss_scale scale = cm::optimizer::loss_scale::fixed(1.0F);
  it.m.use(scale);
  std::vector<cm::optimizer::step_options> others(8, asked);
  others[0].learning_rate = 0.02F;
  others[1].group_rates = rates;
  others[2].clip.norm = 1e-3F;
  others[3].clip.value = 1.0F;
  others[4].clip.order = cm::optimizer::norm_order::l1;
  others[5].loss_scale = &scale;
  others[6].skip_nonfinite = false;
  others[7].seed = 4;
  for (const auto& other : others)
    CHECK_THROWS_WITH(it.early->step(other),
                      ContainsSubstring("called again with other options: give it the first options again"));
  cm::optimizer::late_updates late{it.m, it.kernel};
  CHECK_THROWS_WITH(late.step(asked),
                    ContainsSubstring("a step that early_updates had begun cannot be finished by others"));
  CHECK(it.early->step(asked) == step_result::updated);
  const bool same = it.everything() == plain.everything();
  CHECK(same);
}

TEST_CASE("a loss scale that changed meanwhile is another option, and so are rates and options of groups",
          "[optimizer]")
{
  single it{80_KiB, false, 128_KiB};
  it.kernel.group(cm::group_id{0}, {.beta2 = 0.99F});
  it.step(small);
  it.differentiate(small);
  cm::optimizer::loss_scale scale = cm::optimizer::loss_scale::dynamic({.initial = 4.0F});
  it.m.use(scale);
  float rates[] = {0.01F};
  const cm::optimizer::step_options asked{.group_rates = rates, .loss_scale = &scale};
  it.memory.set_plan({.copy = it.memory.copies() + 1, .persistent = true});
  CHECK_THROWS_AS(it.early->step(asked), cm::device_error);
  it.memory.set_plan({});
  REQUIRE(it.kernel.progress.decision == cm::optimizer::step_decision::guessed);
  rates[0] = 0.02F;
  CHECK_THROWS_AS(it.early->step(asked), cm::usage_error);
  rates[0] = 0.01F;
  scale.skipped();
  CHECK_THROWS_AS(it.early->step(asked), cm::usage_error);
  scale = cm::optimizer::loss_scale::dynamic({.initial = 4.0F});
  it.kernel.group(cm::group_id{0}, {.beta2 = 0.99F, .weight_decay = 1.0F});
  CHECK_THROWS_AS(it.early->step(asked), cm::usage_error);
  it.kernel.group(cm::group_id{0}, {.beta2 = 0.99F});
  CHECK(it.early->step(asked) == step_result::updated);
}

TEMPLATE_TEST_CASE("a loop may change between steps, early and late ones", "[optimizer]", single, separate, in_place)
{
  TestType plain{std::nullopt}, it{80_KiB};
  cm::optimizer::late_updates late{it.m, it.kernel};
  const cm::optimizer::step_options options{.learning_rate = 0.01F, .clip = {.norm = 10.0F}, .seed = 3};
  for (int now = 0; now < 9; ++now) {
    const float size = now == 4 ? large : small;
    plain.step(size);
    const auto scope = it.m.iteration();
    it.differentiate(size);
    if (now % 3 == 0)
      late.step(options);
    else if (now % 3 == 1)
      it.early->step(options);
    else
      cm::optimizer::step(it.m, it.kernel, options);
    if (now % 3 != 0) CHECK(late.waiting() == 0);
  }
  late.finish();
  const bool same = it.everything() == plain.everything();
  CHECK(same);
}

TEST_CASE("room that is not there is an error before anything is done, and a rehearsal in a half-done step is refused",
          "[optimizer]")
{
  single it{4_MiB};
  const auto before = it.everything();
  CHECK_THROWS_AS(it.step(small), cm::out_of_memory);
  CHECK(it.kernel.progress.decision == cm::optimizer::step_decision::open);
  it.m.drop_gradients();
  CHECK(it.everything() == before);
  CHECK_THROWS_AS(single(4_MiB, true), cm::config_error);

  single other{80_KiB, false, 128_KiB};
  other.step(small);
  other.differentiate(small);
  other.memory.set_plan({.copy = other.memory.copies() + 1, .persistent = true});
  CHECK_THROWS_AS(other.update(), cm::device_error);
  other.memory.set_plan({});
  REQUIRE(other.kernel.progress.decision == cm::optimizer::step_decision::guessed);
  CHECK_THROWS_AS(other.m.rehearse([&] { other.step(small); }), cm::usage_error);
  CHECK(other.update() == step_result::updated);
}

TEMPLATE_TEST_CASE("the first step, usual ones and undone ones fit where a rehearsal says that the step fits",
                   "[optimizer]", single, separate, in_place)
{
  int runs = 0;
  const auto need_of = [&](TestType&& it) {
    return it.m.rehearse([&] {
      ++runs;
      it.step(small);
    });
  };
  const cm::bytes device = need_of(TestType{80_KiB}).smallest_device;
  CHECK(runs == 3);
  TestType plain{std::nullopt}, tight{80_KiB, true, device, need_of(TestType{80_KiB, false, device}).smallest_host};
  for (const float size : {small, small, large, small, large, large, small}) {
    plain.step(size);
    tight.step(size);
    CHECK(tight.early->steps_without_room() == 0);
  }
  CHECK(tight.early->early() > 0);
  const bool same = plain.everything() == tight.everything();
  CHECK(same);
}

TEMPLATE_TEST_CASE("a later step without room to undo updates nothing early, with the same bits, and is counted",
                   "[optimizer]", single, separate, in_place)
{
  TestType plain{std::nullopt}, it{80_KiB};
  for (int now = 0; now < 6; ++now) {
    const bool is_full = now == 2;
    plain.step(small);
    const auto scope = it.m.iteration();
    it.differentiate(small);
    auto taken = is_full ? fill_host(it.m) : decltype(fill_host(it.m)){};
    if (is_full) taken.resize(taken.size() - 10);  // room for what the step needs beside
    it.update();
    CHECK((it.early->early() > 0) == (now > 0 && !is_full));
    CHECK(it.early->steps_without_room() == (now < 2 ? 0U : 1U));
  }
  const bool same = plain.everything() == it.everything();
  CHECK(same);
}

TEMPLATE_TEST_CASE("early updates stay or go by the measure of all gradients where it is given", "[optimizer]", single,
                   separate, in_place)
{
  TestType plain{std::nullopt}, early{400_KiB};
  std::size_t stayed = 0, went = 0;
  for (int now = 0; now < 12; ++now) {
    CAPTURE(now);
    cm::gradient_measure given;
    given.squares = now % 3 == 0 ? 1e4 : 4.0;
    given.finite = now % 4 != 1;
    const auto step = [&](TestType& it) {
      const auto scope = it.m.iteration();
      it.differentiate(small);  // by which alone nothing would be clipped
      it.m.updates().gradients().keep_measure_of_all(given);
      return it.update();
    };
    const auto wanted = step(plain), seen = step(early);
    CHECK(wanted.norm == seen.norm);
    CHECK(wanted.result == seen.result);
    CHECK(wanted.result == (given.finite ? step_result::updated : step_result::skipped_nonfinite));
    const bool retained = given.finite && given.squares == 4.0;
    if (!retained) CHECK(early.early->early() == 0);
    (retained ? stayed : went) += early.early->early() != 0 || !retained ? 1 : 0;
    const bool same = plain.everything() == early.everything();
    CHECK(same);
  }
  CHECK((stayed > 2 && went > 2));
}

namespace {

/// How long a step takes, in forward passes of the device, where all updates together take `updates` forward passes.
enum class way { plain, late, early };

struct timed : adam {
  [[nodiscard]] cm::work_cost update_takes(cm::memory_location, std::uint64_t size) const noexcept
  {
    return {nanoseconds * size};
  }
  [[nodiscard]] cm::work_cost measure_takes(cm::memory_location, std::uint64_t size) const noexcept
  {
    return {size / 4};
  }
  std::uint64_t nanoseconds = 0;
};

double passes_of_a_step(way how, std::uint64_t updates)
{
  constexpr std::uint32_t layers = 24;
  constexpr std::uint64_t size = 1U << 20U, forward = 10 * size;
  constexpr int repeated = 4, steps = 8;
  cm::backend::simulated clocks{{.device_capacity = cm::bytes{3 * layers * 2 * size},
                                 .host_capacity = cm::bytes{30 * layers * size},
                                 .host_runs_ahead = true}};
  timed kernel;
  kernel.nanoseconds = 10 * updates;
  cm::manager<cm::backend::simulated> m{clocks, {.chunk_bytes = cm::bytes{2 * size}}};
  m.use(kernel);
  const auto weights = m.add_stacked<cm::bf16>(layers, {size}, cm::role::parameter);
  cm::optimizer::early_updates early{m, kernel, cm::bytes{14 * size * layers}};
  cm::optimizer::late_updates late{m, kernel};
  for (std::uint32_t index = 0; index < layers; ++index)
    (void)m.acquire(weights.slice(index), cm::access::write).size();
  std::uint64_t begin = 0;
  for (int now = 0; now < steps; ++now) {
    if (now == repeated) begin = clocks.now();
    const auto scope = m.iteration();
    for (std::uint32_t index = 0; index < layers; ++index) {
      const auto weight = m.acquire(weights.slice(index), cm::access::read, cm::agent::compute);
      clocks.advance(cm::agent::compute, forward);
    }
    for (std::uint32_t index = layers; index-- > 0;) {
      auto weight = m.acquire(weights.slice(index), cm::access::read, cm::agent::compute);
      clocks.advance(cm::agent::compute, 2 * forward);
      m.gradient_done(m.gradient(std::move(weight)));
    }
    const cm::optimizer::step_options options{.clip = {.norm = 1.0F}};
    if (how == way::late)
      late.step(options);
    else if (how == way::early)
      early.step(options);
    else
      cm::optimizer::step(m, kernel, options);
  }
  late.finish();
  clocks.wait(cm::agent::host, clocks.record(cm::agent::compute));
  return static_cast<double>(clocks.now() - begin) / static_cast<double>((steps - repeated) * layers * forward);
}

}  // namespace

TEST_CASE(
    "early updates overlap the backward pass: they hide more than late ones where updates take longer than a "
    "forward pass",
    "[optimizer]")
{
  for (const std::uint64_t updates : {2U, 3U}) {
    CAPTURE(updates);
    const double plain = passes_of_a_step(way::plain, updates);
    const double late = passes_of_a_step(way::late, updates);
    const double early = passes_of_a_step(way::early, updates);
    CHECK(plain == Catch::Approx(3.0 + static_cast<double>(updates)).margin(0.1));
    CHECK(late < plain);
    CHECK(early < 0.9 * late);
  }
  CHECK(passes_of_a_step(way::late, 1) < passes_of_a_step(way::early, 1));
}

namespace {

struct known_lists {
  bool has_master;
  template <class Visit>
  void for_each_list(const cm::tensor_info&, Visit visit) const
  {
    if (has_master) visit(cm::list_id{2}, cm::dtype::float32);
    visit(cm::list_id{3}, cm::dtype::float32);
    visit(cm::list_id{4}, cm::dtype::bfloat16);
  }
};

}  // namespace

TEST_CASE("what an update overwrites comes back byte by byte, a gradient in the value's place too", "[optimizer]")
{
  constexpr std::size_t length = 37;
  for (const bool in_place : {false, true}) {
    cm::optimizer::adam kernel{{}, {.moments = cm::dtype::bfloat16, .masters = true}};
    std::vector<cm::bf16> value(length), gradient(length);
    std::vector<float> master(length);
    std::vector<cm::bf16> first(length), second(length);
    for (std::size_t i = 0; i < length; ++i) {
      master[i] = 0.25F * static_cast<float>(i);
      value[i] = cm::round_to<cm::bf16>(in_place ? 1.0F : master[i]);
      gradient[i] = first[i] = second[i] = cm::round_to<cm::bf16>(0.5F);
    }
    cm::optimizer::parameter_bytes all;
    all.value = reinterpret_cast<std::byte*>(value.data());
    all.value_type = all.gradient_type = cm::dtype::bfloat16;
    all.gradient = in_place ? all.value : reinterpret_cast<const std::byte*>(gradient.data());
    for (const cm::list_spec& spec : kernel.lists()) {
      std::byte* const data = spec.use == cm::list_use::master
                                  ? reinterpret_cast<std::byte*>(master.data())
                                  : reinterpret_cast<std::byte*>(all.list_count == 1 ? first.data() : second.data());
      all.lists[all.list_count++] = {data, spec.type, spec.use};
    }
    all.elements = length;
    const auto before = std::tuple{value, master, first, second};
    const auto same = [&] {
      return std::memcmp(std::get<0>(before).data(), value.data(), 2 * length) == 0 && std::get<1>(before) == master &&
             std::memcmp(std::get<2>(before).data(), first.data(), 2 * length) == 0 &&
             std::memcmp(std::get<3>(before).data(), second.data(), 2 * length) == 0;
    };
    const cm::tensor_info info{.extents = {length}, .type = cm::dtype::bfloat16};
    std::vector<std::byte> room(length * 10);
    CHECK(cm::optimizer::detail::undo_size(known_lists{true}, info) == length * 12);
    CHECK(cm::optimizer::detail::undo_size(known_lists{false}, info) == length * 8);
    const auto whole = value;
    if (!in_place) std::fill(value.begin(), value.end(), cm::bf16::from_bits(0x7ffe));
    cm::optimizer::detail::keep_bytes(all, room.data());
    value = whole;
    cm::optimizer::update_parameter(kernel, all, {}, {}, 0, cm::on_this_thread);
    CHECK_FALSE(same());
    // it was never read, and what is there may be anything
    if (!in_place) std::fill(value.begin(), value.end(), cm::bf16::from_bits(0x7fff));
    cm::optimizer::detail::bring_back_bytes(all, room.data());
    CHECK(same());
  }
}

}  // namespace early_updates_test
