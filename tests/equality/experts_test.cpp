// SPDX-License-Identifier: Apache-2.0
#include "../differential/managed_walk.hpp"
#include "../differential/plain_walk.hpp"

#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/refusal.hpp>
#include <support/sanitized.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace experts_test {

namespace cm = chunkmem;
namespace mixed = support::mixed;
using namespace cm::literals;
using support::any_backend;
using support::chosen_gradient;

namespace {

constexpr cm::bytes frame = 4_KiB;
constexpr cm::bytes plenty = 2_MiB;
constexpr std::uint32_t orders = 50;

/// A mixture of experts, which a walk visits as its blocks: a head, then a stack of one layer for each expert of ups,
/// biases and downs.
struct net {
  static constexpr std::uint32_t blocks = 6;
  static constexpr std::uint32_t most_visits = blocks;
  static constexpr std::uint64_t widest = 56;

  static constexpr std::uint64_t inner_of(std::uint32_t) noexcept { return widest; }
  static constexpr std::size_t up_of(std::uint32_t expert) noexcept { return 1 + std::size_t{expert}; }
  static constexpr std::size_t bias_of(std::uint32_t expert) noexcept { return blocks + up_of(expert); }
  static constexpr std::size_t down_of(std::uint32_t expert) noexcept { return blocks + bias_of(expert); }
  static std::vector<mixed::parameter> parameters()
  {
    std::vector<mixed::parameter> all{{mixed::width, mixed::width}};
    for (const mixed::parameter& it : {mixed::parameter{mixed::width, widest}, mixed::parameter{1, widest, true, 1},
                                       mixed::parameter{widest, mixed::width}})
      for (std::uint32_t expert = 0; expert < blocks; ++expert) {
        all.push_back(it);
        all.back().stack = expert == 0 ? blocks : 0;
      }
    return all;
  }
};

/// Which experts a step uses, and in which order: at least one. The same on every machine.
std::vector<std::uint32_t> order_of(std::uint64_t seed, std::uint32_t step)
{
  std::vector<std::uint32_t> all;
  for (std::uint32_t expert = 0; expert < net::blocks; ++expert) all.push_back(expert);
  const auto random = [&](std::uint64_t turn, std::uint64_t below) {
    return static_cast<std::uint64_t>((mixed::noise(seed * 1'000'003 + step * 131 + turn) + 0.5F) * 4096.0F) % below;
  };
  for (std::uint64_t index = net::blocks; index > 1; --index) std::swap(all[index - 1], all[random(index, index)]);
  all.resize(1 + random(0, net::blocks));
  return all;
}

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

/// Fifty steps, each with another subset in another order. @return   the difference, or nothing
template <class Element>
std::string train(const trial& it, mixed::rule which)
{
  using manager = cm::manager<any_backend, chosen_gradient>;
  using walk = divergence::managed_walk<manager, any_backend, Element, net>;
  const mixed::recipe how = recipe<Element>(which);
  const cm::agent stream = it.launched ? cm::agent::compute : cm::agent::host;
  support::adversarial_options options{
      .device_capacity = plenty, .host_capacity = plenty, .seed = it.seed, .async_compute = it.launched};
  {
    any_backend memory{options};
    manager m{memory, {.chunk_bytes = frame}, chosen_gradient{it.in_place}};
    options.device_capacity = walk{m, memory, how, stream}.rehearse().smallest_device + it.more_frames * frame;
  }
  any_backend memory{options};
  divergence::plain_walk<net> reference{how};
  std::string difference;
  {
    manager m{memory, {.chunk_bytes = frame}, chosen_gradient{it.in_place}};
    walk run{m, memory, how, stream};
    if (it.rehearsed) run.rehearse();
    run.initialise();
    for (std::uint32_t now = 0; now < orders && difference.empty(); ++now) {
      const divergence::turn step{.name = it.two_loops && now % 2 == 1 ? "odd" : "train",
                                  .passes = {order_of(it.seed, now)},
                                  .spoilt = how.is_spoilt(now, 0)};
      difference = support::refusal<std::exception>([&] { run.take(step, now); });
      if (run.retried() > 0) difference = "an iteration was taken twice";
      if (!difference.empty()) return "step " + std::to_string(now) + ": " + difference;
      reference.take(step, now);
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
