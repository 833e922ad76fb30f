// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <conformance/check_policy.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/every_policy.hpp>

#include <string>

namespace training_test {

namespace cm = chunkmem;
namespace mixed = support::mixed;
using namespace cm::literals;

namespace {

using arena = cm::backend::host_arena;
constexpr mixed::recipe usual = mixed::usual_recipe(4);

[[nodiscard]] mixed::recipe recipe(mixed::precision kind, std::uint32_t micro_batches, mixed::updating updates)
{
  return {.kind = kind,
          .micro_batches = micro_batches,
          .clip = {.norm = 1.0F, .kind = mixed::norm_kind::l2},
          .scale = {.scale = kind == mixed::precision::fp16 ? 131072.0F : 256.0F,
                    .window = 2},  // fp16 overflows in the first step
          .updates = updates};
}

template <class Element>
std::string train_checked(mixed::precision kind, std::uint32_t micro_batches, mixed::updating updates)
{
  using manager = cm::manager<arena, cm::checks::full, support::chosen_gradient, support::every_placement>;
  const bool in_place = kind == mixed::precision::fp16;
  return conformance::train_under<Element, manager, arena>(
      cm::backend::host_arena_options{}, recipe(kind, micro_batches, updates), false,
      support::chosen_gradient{in_place}, support::every_placement{in_place ? "optimizer_on_host" : "device_margin"});
}

}  // namespace

TEST_CASE("a training without mistakes has no complaint and the same bits", "[checks]")
{
  using planned = cm::manager<arena, cm::checks::full>;
  using on_demand = cm::manager<arena, cm::checks::full, cm::transfer::no_prefetch, cm::eviction::lru>;
  CHECK(conformance::train_under<float, planned, arena>(cm::backend::host_arena_options{}, usual, false) == "");
  CHECK(conformance::train_under<float, on_demand, arena>(cm::backend::host_arena_options{.async_compute = true}, usual,
                                                          true) == "");
}

TEST_CASE("so it has where agents work as late as they may", "[checks]")
{
  using adversarial = support::adversarial;
  const support::adversarial_options options{.when = support::schedule::latest, .async_compute = true};
  using manager = cm::manager<adversarial, cm::checks::full>;
  CHECK(conformance::train_under<float, manager, adversarial>(options, usual, true) == "");
}

TEST_CASE("gradients in their weights' places, and steps that are skipped, have no complaint under checks::full",
          "[checks]")
{
  for (const auto updates : {mixed::updating::at_once, mixed::updating::late, mixed::updating::early})
    CHECK(train_checked<cm::fp16>(mixed::precision::fp16, 1, updates) == "");
}

TEST_CASE("gradients that add up have none either, nor updates that come early or late", "[checks]")
{
  for (const auto updates : {mixed::updating::at_once, mixed::updating::late, mixed::updating::early})
    CHECK(train_checked<cm::bf16>(mixed::precision::bf16, 4, updates) == "");
}

}  // namespace training_test
