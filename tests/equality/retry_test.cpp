// SPDX-License-Identifier: Apache-2.0
#include "training_fixture.hpp"

#include <faults/failed_copies.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace retry_test {

using namespace training;

/// A copy fails in the middle of 16-bit training, for every copy: a typed error, and after the retry the same bits.

namespace {

constexpr std::uint32_t steps = 4;

mixed::recipe recipe(mixed::rule which, mixed::updating updates = mixed::updating::at_once)
{
  return {.kind = mixed::precision::bf16,
          .optimizer = which,
          .clip = {.norm = 1.0F},
          .scale = {.scale = 512.0F, .window = 2},
          .steps = steps,
          .spoilt = {2, mixed::never},
          .updates = updates};
}

using patient_manager = cm::manager<any_backend, chosen_gradient>;

/// @param stride   every so many copies one run; 1 is all of them
void fail_copies(mixed::rule which, bool in_place, std::uint64_t stride,
                 mixed::updating updates = mixed::updating::at_once)
{
  (void)failed_copies::fail_copies<patient_manager, cm::bf16>({.how = recipe(which, updates), .in_place = in_place},
                                                              stride);
}

}  // namespace

TEST_CASE("a copy that fails in mid step is an error from which training recovers", "[equality]")
{
  for (const bool in_place : {false, true}) {
    fail_copies(mixed::rule::adam, in_place, support::sanitized ? 13 : 3);
    fail_copies(mixed::rule::sgd, in_place, support::sanitized ? 29 : 7);
  }
}

TEST_CASE("so is one of an update that waited until its weight was used", "[equality]")
{
  fail_copies(mixed::rule::adam, false, support::sanitized ? 31 : 5, mixed::updating::late);
  fail_copies(mixed::rule::sgd, true, support::sanitized ? 23 : 4, mixed::updating::late);
}

TEST_CASE("so is one of an update that was done before the norm was known, or is undone", "[equality]")
{
  fail_copies(mixed::rule::adam, true, support::sanitized ? 31 : 4, mixed::updating::early);
  fail_copies(mixed::rule::sgd, false, support::sanitized ? 23 : 5, mixed::updating::early);
}

TEST_CASE("a step that finds no room is an error from which training recovers", "[equality]")
{
  const mixed::recipe how = recipe(mixed::rule::adam);
  for (const bool in_place : {false, true})
    for (const bool updating : {false, true})
      for (std::uint32_t frames = 1; frames < 12; ++frames) {
        INFO((in_place ? "in place" : "separate")
             << ", a lease of " << frames << " frames" << (updating ? " over the update" : ""));
        fixture<cm::bf16> it{how, {.in_place = in_place, .more_frames = 1}};
        int refused = 0;
        for (std::uint32_t now = 0; now < steps; ++now) {
          const auto attempt = [&](bool hindered) {
            const auto work = [&] { return it.m.lease(cm::tier::device, frames * frame); };
            std::optional<decltype(work())> taken;
            auto scope = it.m.iteration();
            if (hindered && !updating) taken.emplace(work());
            it.run.forward_and_backward(scope, now, 0);
            try {
              if (hindered && updating) taken.emplace(work());
              it.run.update();
            } catch (const cm::out_of_memory&) {
              ++refused;
              taken.reset();
              it.run.update();
            }
          };
          try {
            attempt(now > 0);
          } catch (const cm::out_of_memory&) {
            ++refused;
            it.run.forget_step();
            attempt(false);
          }
          it.reference.step(now);
        }
        REQUIRE(it.difference() == "");
        if (!updating && frames > 2) CHECK(refused > 0);
      }
}

TEST_CASE("a step that was decided to be skipped stays skipped when it is taken again", "[equality]")
{
  // Infinity is in the first gradient alone, and weights share chunks: making the first weight again may fail half way.
  constexpr std::uint32_t count = 10;
  constexpr std::uint64_t elements = 900;
  std::uint64_t copies = 1;
  std::uint64_t failures = 0;
  for (std::uint64_t k = 0; k < copies; ++k)
    for (const bool in_place : {false, true}) {
      INFO((in_place ? "in place" : "separate") << ", copy " << k);
      any_backend memory{support::adversarial_options{
          .device_capacity = 4 * frame, .host_capacity = plenty, .when = support::schedule::latest}};
      patient_manager m{memory, chunks, chosen_gradient{in_place}};
      cm::optimizer::adam kernel;
      m.use(kernel);
      const auto weights = m.add_stacked<cm::bf16>(count, {elements}, cm::role::parameter);
      auto scale = cm::optimizer::loss_scale::dynamic({.initial = 256.0F});
      m.use(scale);
      for (std::uint32_t index = 0; index < count; ++index) {
        const auto pin = m.acquire(weights.slice(index), cm::access::write);
        for (std::uint64_t i = 0; i < elements; ++i) mixed::view(pin).set(i, mixed::noise(index * elements + i));
      }
      const auto differentiate = [&](bool spoilt) {
        for (std::uint32_t index = count; index-- > 0;) {
          auto gradient = m.gradient(weights.slice(index));
          for (std::uint64_t i = 0; i < elements; ++i)
            mixed::view(gradient).set(i, spoilt && index == 0 ? INFINITY : mixed::noise(i));
          m.gradient_done(std::move(gradient));  // no pass that would bring the gradients to the host before
        }
      };
      const auto look = [&] {
        mixed::outcome seen;
        for (std::uint32_t index = 0; index < count; ++index) {
          const auto value = m.acquire(weights.slice(index), cm::access::read, cm::memory_location::host);
          seen.add("value", std::span<const cm::bf16>{value.span()});
          for (const char* name : {"master", "adam/momentum"}) {
            const auto list =
                m.acquire<float>(weights.slice(index), m.list(name), cm::access::read, cm::memory_location::host);
            seen.add(name, std::span<const float>{list.span()});
          }
        }
        return seen;
      };
      {
        auto scope = m.iteration();
        differentiate(false);
        cm::optimizer::step(m, kernel, {.loss_scale = &scale});
      }
      const mixed::outcome before = look();
      auto scope = m.iteration();
      differentiate(true);
      const std::uint64_t begin = memory.copies();
      memory.set_plan({.copy = begin + k});
      for (bool done = false; !done;) {
        try {
          const cm::optimizer::step_result result = cm::optimizer::step(m, kernel, {.loss_scale = &scale});
          CHECK(result == cm::optimizer::step_result::skipped_nonfinite);
          done = true;
        } catch (const cm::device_error&) {
          ++failures;
        }
      }
      copies = std::max(copies, memory.copies() - begin);
      memory.set_plan({});
      CHECK(kernel.progress.number == 1);
      CHECK(scale.skips() == 1);
      CHECK(before.difference(look()) == "");
    }
  CHECK(failures > 0);
}

TEST_CASE("so is every copy of a training run", "[equality][.slow]")
{
  for (const bool in_place : {false, true})
    for (const auto updates : {mixed::updating::at_once, mixed::updating::late, mixed::updating::early})
      fail_copies(mixed::rule::adam, in_place, 1, updates);
}

}  // namespace retry_test
