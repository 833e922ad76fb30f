// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "small_model.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/io/posix_folder.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/every_policy.hpp>
#include <support/mixed_trainer.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// A trainer that is saved and resumes elsewhere.
namespace checkpoints {

namespace mixed = support::mixed;
using either_layout = cm::any_layout<cm::append_layout, cm::size_class_layout>;
using arena_manager = cm::manager<arena, support::every_eviction, support::chosen_gradient, either_layout>;

/// The settings of a run that do not change its numbers.
struct surroundings {
  cm::bytes chunk = 4_KiB;
  cm::bytes device = 2_MiB;
  std::string_view eviction = "belady";
  std::string_view layout = "append_layout";
  bool in_place = false;
};

[[nodiscard]] inline mixed::recipe recipe_for(mixed::precision kind, std::uint32_t steps)
{
  return {.kind = kind, .clip = {.norm = 1.0F}, .scale = {.scale = 256.0F, .window = 2}, .steps = steps};
}

/// A backend, a manager and a trainer whose numbers are all registered.
template <class Manager, class Backend, class Element, class Options = cm::backend::host_arena_options>
struct rig {
  rig(const surroundings& around, const mixed::recipe& how)
      : memory{with(Options{}, around)},
        m{memory,
          {.chunk_bytes = around.chunk},
          support::every_eviction{around.eviction},
          support::chosen_gradient{around.in_place},
          either_layout{around.layout}},
        trainer{m, memory, how}
  {
    m.state("data/cursor", std::as_writable_bytes(std::span{&cursor, 1}));
  }

  void initialise() { trainer.initialise(); }
  void train(std::uint32_t until)
  {
    for (; cursor < until; ++cursor) trainer.whole_step(cursor);
  }
  [[nodiscard]] mixed::outcome values() { return trainer.values(); }

  Backend memory;
  Manager m;
  mixed::trainer<Manager, Backend, Element> trainer;
  std::uint32_t cursor = 0;

 private:
  static Options with(Options options, const surroundings& around)
  {
    options.device_capacity = around.device;
    options.host_capacity = 4_MiB;
    return options;
  }
};

template <class Element>
using arena_rig = rig<arena_manager, arena, Element>;

// Compiled once, in load_test.cpp.
extern template struct rig<arena_manager, arena, cm::bf16>;
extern template struct rig<arena_manager, arena, float>;

/// The results of an uninterrupted training.
template <class Element>
[[nodiscard]] mixed::outcome uninterrupted(const mixed::recipe& how)
{
  arena_rig<Element> run{surroundings{}, how};
  run.initialise();
  run.train(how.steps);
  return run.values();
}

}  // namespace checkpoints
