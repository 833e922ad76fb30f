// SPDX-License-Identifier: Apache-2.0
#include <support/sanitized.hpp>
#include "training_fixture.hpp"

namespace overflow_test {

using namespace training;

/// Overflow skips a step and changes nothing but the loss scale; clipping and accumulation agree with the reference.

namespace {

template <class Element>
mixed::recipe recipe(mixed::rule which, std::uint32_t micro_batches, std::uint32_t spoilt)
{
  return {.kind = precision_of<Element>(),
          .optimizer = which,
          .micro_batches = micro_batches,
          .clip = {.norm = 1.0F},
          .scale = {.scale = 1024.0F, .window = 3},
          .steps = 6,
          .spoilt = {spoilt, mixed::never}};
}

/// A step whose gradients overflow leaves every byte of weights, masters and states, and the number of updates.
template <class Element>
void skip_and_go_on(const mixed::recipe& how, const manner& with)
{
  INFO((with.in_place ? "in place" : "separate") << (with.rehearsed ? ", rehearsed" : "") << ", micro-batches "
                                                 << how.micro_batches << ", overflow in step " << how.spoilt[0]);
  fixture<Element> it{how, with};
  for (std::uint32_t now = 0; now < how.steps; ++now) {
    mixed::outcome before;  // masters do not exist before the first iteration: the reference's, which are the same
    it.reference.weights().add_weights_to(before);
    const std::uint64_t updates = it.run.weights().updates();
    const float scale = it.run.weights().scale();
    it.step(now);
    REQUIRE(it.difference() == "");
    if (now != how.spoilt[0]) {
      CHECK(it.run.weights().updates() == updates + 1);
      continue;
    }
    CHECK(before.difference(it.weights()) == "");
    CHECK(it.run.weights().updates() == updates);
    CHECK(it.run.weights().scale() == scale / 2);
  }
  CHECK(it.run.weights().updates() == how.steps - 1);
}

template <class Element>
void skip_everywhere(mixed::rule which)
{
  for (const std::uint32_t spoilt : {0U, 1U, 3U}) {
    if (support::sanitized && spoilt != 1) continue;
    for (const std::uint32_t micro_batches : {1U, 4U})
      skip_and_go_on<Element>(recipe<Element>(which, micro_batches, spoilt), {});
    if (sizeof(Element) == 4) continue;
    for (const bool rehearsed : {false, true})
      for (const bool launched : {false, true})
        skip_and_go_on<Element>(recipe<Element>(which, 1, spoilt),
                                {.in_place = true, .rehearsed = rehearsed, .launched = launched});
  }
}

template <class Element>
void train(const mixed::recipe& how, const manner& with)
{
  fixture<Element> it{how, with};
  for (std::uint32_t now = 0; now < how.steps; ++now) {
    it.run.whole_step(now);
    it.reference.whole_step(now);
  }
  const std::string difference = it.difference();
  REQUIRE(difference == "");
}

}  // namespace

TEST_CASE("an overflow in any step changes nothing but the loss scale", "[equality]")
{
  skip_everywhere<cm::bf16>(mixed::rule::adam);
  skip_everywhere<cm::fp16>(mixed::rule::sgd);
  skip_everywhere<float>(mixed::rule::adam);
}

TEST_CASE("gradients clipped by each norm and by value give the bits of the reference", "[equality]")
{
  const mixed::limits kinds[] = {{.norm = 20.0F, .kind = mixed::norm_kind::l1},
                                 {.norm = 0.5F, .kind = mixed::norm_kind::l2},
                                 {.norm = 0.05F, .kind = mixed::norm_kind::linf},
                                 {.value = 0.01F},
                                 {.norm = 0.5F, .kind = mixed::norm_kind::l2, .value = 0.01F},
                                 {.norm = 1e6F}};
  for (const mixed::limits& clip : kinds)
    for (const mixed::rule which : {mixed::rule::adam, mixed::rule::sgd}) {
      if (support::sanitized && which == mixed::rule::sgd) continue;
      INFO("norm " << clip.norm << " of kind " << static_cast<int>(clip.kind) << ", value " << clip.value);
      mixed::recipe how = recipe<cm::bf16>(which, 1, 2);
      how.clip = clip;
      train<cm::bf16>(how, {.in_place = true});
      how.micro_batches = 4;
      train<cm::bf16>(how, {});
      how.kind = mixed::precision::fp32;
      train<float>(how, {});
    }
}

TEST_CASE("gradients in single precision add up over micro-batches as in the reference", "[equality]")
{
  for (const mixed::rule which : {mixed::rule::adam, mixed::rule::sgd})
    for (const std::uint32_t micro_batches : {1U, 3U, 8U}) {
      INFO("micro-batches " << micro_batches);
      mixed::recipe how = recipe<cm::bf16>(which, micro_batches, 2);
      how.wide = true;
      train<cm::bf16>(how, {});
      how.kind = mixed::precision::fp16;
      train<cm::fp16>(how, {.launched = true});
    }
}

TEST_CASE("learning rates by group replace the one rate", "[equality]")
{
  mixed::recipe how = recipe<cm::bf16>(mixed::rule::adam, 1, 2);
  how.rates[0] = 0.004F;
  how.rates[1] = 0.02F;
  for (const bool in_place : {false, true}) train<cm::bf16>(how, {.in_place = in_place});
}

TEST_CASE("a loss scale that never changes gives the bits of the reference", "[equality]")
{
  mixed::recipe how = recipe<cm::bf16>(mixed::rule::adam, 1, 2);
  how.scale = {.scale = 512.0F};
  for (const bool in_place : {false, true}) train<cm::bf16>(how, {.in_place = in_place});
}

}  // namespace overflow_test
