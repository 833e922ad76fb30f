// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/mixed_reference.hpp>
#include <support/mixed_trainer.hpp>

#include <cstdint>
#include <string>

/// A trainer of the mixed model on the smallest device that its step runs on, beside its reference.
namespace training {

namespace cm = chunkmem;
namespace mixed = support::mixed;
using namespace cm::literals;
using support::any_backend;
using support::chosen_gradient;

inline constexpr cm::bytes frame = 4_KiB;
inline constexpr cm::bytes plenty = 2_MiB;
inline constexpr cm::manager_options chunks{.chunk_bytes = frame};

/// How the weights are kept, apart from the recipe.
struct manner {
  bool in_place = false;
  bool rehearsed = true;  ///< on the manager that trains, so that gradients lie in place from the first step on
  bool launched = false;
  std::uint32_t more_frames = 0;
};

inline constexpr manner both[] = {
    {.more_frames = 8}, {.in_place = true, .more_frames = 8}, {.in_place = true, .rehearsed = false, .more_frames = 8}};

/// Clipped, with a loss scale that changes. @param spoilt   the step whose gradients overflow
[[nodiscard]] inline mixed::recipe recipe(std::uint32_t spoilt)
{
  return {.kind = mixed::precision::bf16,
          .clip = {.norm = 1.0F},
          .scale = {.scale = 512.0F, .window = 2},
          .spoilt = {spoilt, mixed::never}};
}

template <class Element>
[[nodiscard]] constexpr mixed::precision precision_of() noexcept
{
  if constexpr (cm::dtype_of<Element> == cm::dtype::bfloat16)
    return mixed::precision::bf16;
  else if constexpr (cm::dtype_of<Element> == cm::dtype::float16)
    return mixed::precision::fp16;
  else
    return mixed::precision::fp32;
}

template <class Element>
struct fixture {
  using manager = cm::manager<any_backend, chosen_gradient>;
  using trainer = mixed::trainer<manager, any_backend, Element>;

  fixture(const mixed::recipe& recipe, const manner& how)
      : memory{options_for(recipe, how)},
        m{memory, chunks, chosen_gradient{how.in_place, recipe.wide}},
        run{m, memory, recipe, crew_of(how, memory)},
        reference{recipe}
  {
    if (how.rehearsed) run.rehearse();
    run.initialise();
  }
  ~fixture()
  {
    memory.drain();
    CHECK(memory.faults().empty());
  }

  void step(std::uint32_t now)
  {
    run.step(now);
    reference.step(now);
  }
  /// What differs from the reference, or nothing.
  [[nodiscard]] std::string difference() { return reference.collect().difference(run.collect()); }
  /// Values, masters and states of all parameters.
  [[nodiscard]] mixed::outcome weights()
  {
    mixed::outcome all;
    run.weights().add_weights_to(all);
    return all;
  }

  any_backend memory;
  manager m;
  trainer run;
  mixed::reference reference;

 private:
  static mixed::crew crew_of(const manner& how, any_backend& memory)
  {
    return how.launched ? mixed::crew{cm::agent::compute, memory.adopt()} : mixed::crew{};
  }
  static support::adversarial_options options_for(const mixed::recipe& recipe, const manner& how)
  {
    support::adversarial_options options{.device_capacity = plenty,
                                         .host_capacity = plenty,
                                         .when = support::schedule::latest,
                                         .async_compute = how.launched};
    any_backend spare{options};
    const mixed::crew workers = crew_of(how, spare);
    manager m{spare, chunks, chosen_gradient{how.in_place, recipe.wide}};
    options.device_capacity = trainer{m, spare, recipe, workers}.rehearse().smallest_device + how.more_frames * frame;
    return options;
  }
};

}  // namespace training
