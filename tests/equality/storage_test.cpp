// SPDX-License-Identifier: Apache-2.0
#include "training_fixture.hpp"

#include <chunkmem/optimizer/thread_pool.hpp>

#include <cstdint>
#include <vector>

namespace storage_test {

using namespace training;

/// Stochastic rounding and shared work have the same bits in every way of computing. Also the bytes of a weight.

namespace {

/// Without a reference: the stochastic bits are the library's own.
template <class Element>
mixed::outcome train(const mixed::recipe& how, const manner& with)
{
  fixture<Element> it{how, with};
  for (std::uint32_t now = 0; now < how.steps; ++now) it.run.whole_step(now);
  return it.run.collect();
}

constexpr std::uint64_t many = 70'001;  // more than workers leave to the caller, and no whole number of blocks

/// A large parameter, two steps, with gradients that overflow in the second one if `spoilt`.
template <class Workers>
std::vector<float> update_large(Workers& workers, bool in_place, bool tells_norms, bool spoilt, double& norm)
{
  using manager = cm::manager<any_backend, chosen_gradient>;
  any_backend memory{support::adversarial_options{
      .device_capacity = 8_MiB, .host_capacity = 8_MiB, .when = support::schedule::latest}};
  manager m{memory, {.chunk_bytes = 64_KiB}, chosen_gradient{in_place}};
  cm::optimizer::adam kernel{{.weight_decay = 0.1F}};
  m.use(kernel);
  const auto weight = m.add<cm::bf16>({many}, cm::role::parameter);
  {
    const auto pin = m.acquire(weight, cm::access::write);
    for (std::uint64_t i = 0; i < many; ++i) mixed::view(pin).set(i, mixed::noise(i));
  }
  for (std::uint32_t now = 0; now < 3; ++now) {
    auto scope = m.iteration();
    {
      auto gradient = m.gradient(weight);
      for (std::uint64_t i = 0; i < many; ++i) mixed::view(gradient).set(i, mixed::noise(many * (now + 1) + i));
      if (spoilt && now == 1) mixed::view(gradient).set(many - 1, INFINITY);
      if (tells_norms) m.gradient_done(std::move(gradient));
    }
    const auto outcome = cm::optimizer::step(m, kernel, {.learning_rate = 0.01F, .clip = {.norm = 0.5F}}, workers);
    CHECK((outcome == cm::optimizer::step_result::updated) == !(spoilt && now == 1));
    if (outcome == cm::optimizer::step_result::updated) norm = outcome.norm;
  }
  const auto master = m.template acquire<float>(weight, m.list("master"), cm::access::read, cm::memory_location::host);
  std::vector<float> all{master.span().begin(), master.span().end()};
  const auto value = m.acquire(weight, cm::access::read);
  for (std::uint64_t i = 0; i < many; ++i) all.push_back(mixed::view(value).get(i));
  return all;
}

/// The same on vectors.
std::vector<float> update_plainly(bool spoilt, double& norm)
{
  std::vector<float> master(many), first(many), second(many), gradient(many);
  for (std::uint64_t i = 0; i < many; ++i) master[i] = mixed::rounded_to(mixed::precision::bf16, mixed::noise(i));
  std::uint64_t updates = 0;
  for (std::uint32_t now = 0; now < 3; ++now) {
    if (spoilt && now == 1) continue;
    for (std::uint64_t i = 0; i < many; ++i)
      gradient[i] = mixed::rounded_to(mixed::precision::bf16, mixed::noise(many * (now + 1) + i));
    mixed::plain_measure sums;
    sums.add_tensor(gradient);
    norm = sums.norm(mixed::norm_kind::l2);
    const auto factor = static_cast<float>(std::min(1.0, 0.5 / (norm + 1e-6)));
    for (float& value : gradient) value = mixed::without_denormals(value * factor);
    mixed::plain_update(mixed::rule::adam, {.weight_decay = 0.1F}, 0.01F, ++updates, master, gradient, first, second);
  }
  std::vector<float> all = master;
  for (const float value : master) all.push_back(mixed::rounded_to(mixed::precision::bf16, value));
  return all;
}

}  // namespace

TEST_CASE("stochastic rounding gives the same bits on every device", "[equality]")
{
  for (const mixed::rule which : {mixed::rule::adam, mixed::rule::sgd})
    for (const bool masters : {false, true})
      for (const bool half_states : {false, true}) {
        if (masters && !half_states) continue;  // nothing is rounded stochastically
        INFO((masters ? "masters" : "no masters") << (half_states ? ", states in bf16" : ""));
        mixed::recipe how{.kind = mixed::precision::bf16,
                          .optimizer = which,
                          .clip = {.norm = 1.0F},
                          .scale = {.scale = 512.0F, .window = 2},
                          .masters = masters,
                          .half_states = half_states,
                          .seed = 11};
        const mixed::outcome expected = train<cm::bf16>(how, {});
        CHECK(expected.difference(train<cm::bf16>(how, {.more_frames = 100})) == "");
        CHECK(expected.difference(train<cm::bf16>(how, {.rehearsed = false, .launched = true, .more_frames = 3})) ==
              "");
        if (masters) CHECK(expected.difference(train<cm::bf16>(how, {.in_place = true})) == "");
        how.seed = 12;
        CHECK(expected.difference(train<cm::bf16>(how, {})) != "");
      }
}

TEST_CASE("workers that share an update, and the norm before it, change no bit", "[equality]")
{
  cm::serial alone;
  cm::optimizer::thread_pool two{2};
  cm::optimizer::thread_pool three{3};
  for (const bool in_place : {false, true})
    for (const bool tells_norms : {false, true})
      for (const bool spoilt : {false, true}) {
        INFO((in_place ? "in place" : "separate")
             << (tells_norms ? ", gradient_done" : "") << (spoilt ? ", spoilt" : ""));
        double norm = 0;
        double norms[3] = {};
        const std::vector<float> expected = update_plainly(spoilt, norm);
        CHECK(update_large(alone, in_place, tells_norms, spoilt, norms[0]) == expected);
        CHECK(update_large(two, in_place, tells_norms, spoilt, norms[1]) == expected);
        CHECK(update_large(three, in_place, tells_norms, spoilt, norms[2]) == expected);
        for (const double it : norms) CHECK(it == norm);
      }
}

TEST_CASE("a frozen weight costs its own bytes and nothing else", "[equality]")
{
  using manager = cm::manager<any_backend, chosen_gradient>;
  for (const bool in_place : {false, true}) {
    any_backend memory{support::adversarial_options{.device_capacity = plenty, .host_capacity = plenty}};
    manager m{memory, chunks, chosen_gradient{in_place}};
    cm::optimizer::adam kernel;
    m.use(kernel);
    const auto frozen = m.add<cm::bf16>({64, 64}, cm::role::frozen);
    const auto trained = m.add<cm::bf16>({16, 16}, cm::role::parameter);
    const cm::memory_requirement need = m.seal();
    CHECK(need.by_role[cm::role::frozen] == cm::bytes{2 * 64 * 64});
    CHECK(need.by_role[cm::role::parameter] == cm::bytes{2 * 16 * 16});
    CHECK(need.by_role[cm::role::optimizer_state] == cm::bytes{12 * 16 * 16});
    for (const auto& it : {frozen, trained}) {
      const auto pin = m.acquire(it, cm::access::write);
      for (std::uint64_t i = 0; i < pin.size(); ++i) mixed::view(pin).set(i, 1.0F);
    }
    std::uint32_t parameters = 0;
    m.for_each_parameter([&](cm::tensor_handle it, const cm::tensor_info&) { parameters += it == trained ? 1 : 100; });
    CHECK(parameters == 1);
    CHECK_THROWS_AS(m.gradient(frozen), cm::usage_error);
    {
      auto pin = m.acquire(frozen, cm::access::read);
      CHECK_THROWS_AS(m.gradient(std::move(pin)), cm::usage_error);
      CHECK(pin.span()[7].bits() == mixed::bits_of(mixed::precision::bf16, 1.0F));  // the pin is as it was
    }
    CHECK_THROWS_AS(m.has_gradient(frozen), cm::usage_error);
    CHECK_THROWS_AS(m.gradient_done(frozen), cm::usage_error);
    for (const char* list : {"adam/momentum", "adam/variance", "master"})
      CHECK_THROWS_AS(m.acquire<float>(frozen, m.list(list), cm::access::read, cm::memory_location::host),
                      cm::usage_error);
    CHECK_THROWS_AS(m.acquire<cm::bf16>(frozen, cm::gradient_list, cm::access::read, cm::memory_location::host),
                    cm::usage_error);
    CHECK(m.acquire(frozen, cm::access::read).span()[9].bits() == mixed::bits_of(mixed::precision::bf16, 1.0F));
  }
}

TEST_CASE("gradients in place need fourteen bytes for each parameter with Adam, separate ones sixteen", "[equality]")
{
  using manager = cm::manager<any_backend, chosen_gradient>;
  constexpr std::uint64_t elements = 64 * 64;
  for (const bool in_place : {false, true}) {
    any_backend memory{support::adversarial_options{.device_capacity = plenty, .host_capacity = plenty}};
    manager m{memory, chunks, chosen_gradient{in_place}};
    cm::optimizer::adam kernel;
    m.use(kernel);
    const auto weights = m.add_stacked<cm::bf16>(3, {64, 64}, cm::role::parameter);
    const cm::memory_requirement need = m.rehearse([&] {
      auto scope = m.iteration();
      for (std::uint32_t layer = 0; layer < 3; ++layer) m.acquire(weights.slice(layer), cm::access::read).release();
      for (std::uint32_t layer = 3; layer-- > 0;) {
        auto pin = m.acquire(weights.slice(layer), cm::access::read);
        m.gradient_done(m.gradient(std::move(pin)));
      }
      cm::optimizer::step(m, kernel);
    });
    CHECK(need.chunks == cm::bytes{3 * elements * (in_place ? 14 : 16)});
  }
}

}  // namespace storage_test
