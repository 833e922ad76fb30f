// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/every_policy.hpp>
#include <support/mixed_reference.hpp>
#include <support/mixed_trainer.hpp>

#include <string>
#include <string_view>

namespace mixed_training_test {

namespace cm = chunkmem;
namespace mixed = support::mixed;
using namespace cm::literals;

namespace {

/// The trainer in 16 bits with masters, in the least device, under checks::full. @return   what differs from a run on
/// vectors
template <class Element>
std::string train_checked(const mixed::recipe& how, bool in_place, std::string_view placement)
{
  using arena = cm::backend::host_arena;
  using manager = cm::manager<arena, cm::checks::full, support::chosen_gradient, support::every_placement>;
  using trainer = mixed::trainer<manager, arena, Element>;
  cm::backend::host_arena_options options{.device_capacity = 2_MiB, .host_capacity = 2_MiB};
  const support::chosen_gradient gradient{in_place};
  const support::every_placement states{placement};
  {
    arena memory{options};
    manager m{memory, {.chunk_bytes = 4_KiB}, gradient, states};
    options.device_capacity = trainer{m, memory, how}.rehearse().smallest_device;
  }
  arena memory{options};
  manager m{memory, {.chunk_bytes = 4_KiB}, gradient, states};
  trainer run{m, memory, how};
  cm::tensor_handle last;
  m.for_each_parameter([&](cm::tensor_handle it, const cm::tensor_info&) { last = it; });
  m.without_gradient(last);  // no step uses it
  const mixed::outcome found = run.train();
  m.verify();
  return mixed::reference{how}.train().difference(found);
}

[[nodiscard]] mixed::recipe recipe(mixed::precision kind, std::uint32_t micro_batches, mixed::updating updates)
{
  return {.kind = kind,
          .micro_batches = micro_batches,
          .clip = {.norm = 1.0F, .kind = mixed::norm_kind::l2},
          .scale = {.scale = kind == mixed::precision::fp16 ? 131072.0F : 256.0F,
                    .window = 2},  // fp16 overflows in the first step
          .updates = updates};
}

}  // namespace

TEST_CASE("gradients in their weights' places, and steps that are skipped, have no complaint under checks::full",
          "[checks]")
{
  CHECK(train_checked<cm::fp16>(recipe(mixed::precision::fp16, 1, mixed::updating::at_once), true,
                                "optimizer_on_host") == "");
  CHECK(train_checked<cm::fp16>(recipe(mixed::precision::fp16, 1, mixed::updating::late), true, "optimizer_on_host") ==
        "");
  CHECK(train_checked<cm::fp16>(recipe(mixed::precision::fp16, 1, mixed::updating::early), true, "optimizer_on_host") ==
        "");
}

TEST_CASE("gradients that add up have none either, nor updates that come early or late", "[checks]")
{
  CHECK(train_checked<cm::bf16>(recipe(mixed::precision::bf16, 4, mixed::updating::at_once), false, "device_margin") ==
        "");
  CHECK(train_checked<cm::bf16>(recipe(mixed::precision::bf16, 4, mixed::updating::late), false, "device_margin") ==
        "");
  CHECK(train_checked<cm::bf16>(recipe(mixed::precision::bf16, 4, mixed::updating::early), false, "device_margin") ==
        "");
}

}  // namespace mixed_training_test
