// SPDX-License-Identifier: Apache-2.0
#include "experts.hpp"

#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/sanitized.hpp>

#include <cstdint>
#include <iostream>
#include <string>

namespace experts_test {

using namespace experts;
using namespace cm::literals;
using support::any_backend;
using support::chosen_gradient;

namespace {

constexpr cm::bytes frame = 4_KiB;
constexpr cm::bytes plenty = 2_MiB;
constexpr std::uint32_t orders = 50;

template <class Element>
constexpr mixed::precision precision_of =
    cm::dtype_of<Element> == cm::dtype::bfloat16 ? mixed::precision::bf16 : mixed::precision::fp16;

template <class Element>
mixed::recipe recipe(mixed::rule which)
{
  return {.kind = precision_of<Element>,
          .optimizer = which,
          .clip = {.norm = 2.0F},
          .scale = {.scale = sizeof(Element) == 2 ? 4096.0F : 1.0F, .window = 10},
          .steps = orders,
          .spoilt = {7, 31}};
}

struct trial {
  bool in_place = false;
  bool launched = false;
  bool rehearsed = false;         ///< on the manager that trains
  std::uint32_t more_frames = 0;  ///< than a step that uses all experts needs
  std::uint64_t seed = 1;
  bool two_loops = false;  ///< even and odd steps have names of their own
};

/// Fifty steps, each with another subset in another order. @return   what differs, or nothing
template <class Element>
std::string train(const trial& it, mixed::rule which)
{
  using manager = cm::manager<any_backend, chosen_gradient>;
  const mixed::recipe how = recipe<Element>(which);
  support::adversarial_options options{
      .device_capacity = plenty, .host_capacity = plenty, .seed = it.seed, .async_compute = it.launched};
  {
    any_backend memory{options};
    manager m{memory, {.chunk_bytes = frame}, chosen_gradient{it.in_place}};
    options.device_capacity =
        managed<manager, any_backend, Element>{m, memory, how}.rehearse().smallest_device + it.more_frames * frame;
  }
  any_backend memory{options};
  plain reference{how};
  std::string difference;
  {
    manager m{memory, {.chunk_bytes = frame}, chosen_gradient{it.in_place}};
    managed<manager, any_backend, Element> run{m, memory, how, it.launched ? cm::agent::compute : cm::agent::host};
    if (it.rehearsed) run.rehearse();
    run.initialise();
    for (std::uint32_t now = 0; now < orders && difference.empty(); ++now) {
      const auto order = order_of(it.seed, now);
      try {
        run.step(now, order, it.two_loops && now % 2 == 1 ? "odd" : "train");
      } catch (const std::exception& failed) {
        return "step " + std::to_string(now) + ": " + failed.what();
      }
      reference.step(now, order);
      if (now % 8 == 7) difference = reference.collect().difference(run.collect());
    }
    if (difference.empty()) difference = reference.collect().difference(run.collect());
  }
  memory.drain();
  return difference.empty() && !memory.faults().empty() ? memory.faults().front() : difference;
}

template <class Element>
void train_all(mixed::rule which, std::uint64_t seeds)
{
  for (const bool in_place : {false, true})
    for (const bool launched : {false, true})
      for (const bool rehearsed : {false, true}) {
        if (support::sanitized && rehearsed != launched) continue;
        for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
          const trial it{in_place, launched, rehearsed, 4, seed};
          INFO((in_place ? "in place" : "separate")
               << (launched ? ", launched" : "") << (rehearsed ? ", rehearsed" : "") << ", seed " << seed);
          const std::string difference = train<Element>(it, which);
          CHECK(difference == "");
        }
      }
}

}  // namespace

TEST_CASE("fifty orders of experts in bf16 never fail and never lose a bit", "[equality]")
{
  train_all<cm::bf16>(mixed::rule::adam, support::sanitized ? 1 : 2);
}

TEST_CASE("fifty orders of experts in fp16 never fail and never lose a bit", "[equality]")
{
  train_all<cm::fp16>(mixed::rule::sgd, 1);
}

TEST_CASE("experts whose steps have two names never lose a bit", "[equality]")
{
  for (const bool in_place : {false, true})
    for (const bool rehearsed : {false, true}) {
      INFO((in_place ? "in place" : "separate") << (rehearsed ? ", rehearsed" : ""));
      const std::string difference = train<cm::bf16>({in_place, true, rehearsed, 4, 5, true}, mixed::rule::adam);
      CHECK(difference == "");
    }
}

TEST_CASE("the least device for all experts is enough for any of them, in any order", "[equality]")
{
  for (const bool in_place : {false, true})
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      INFO((in_place ? "in place" : "separate") << ", seed " << seed);
      const std::string difference = train<cm::bf16>({in_place, seed == 3, true, 0, seed}, mixed::rule::adam);
      CHECK(difference == "");
    }
}

}  // namespace experts_test
