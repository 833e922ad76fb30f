// SPDX-License-Identifier: Apache-2.0
#include "adapter.hpp"

#include <chunkmem/backend/host_arena.hpp>

// Compiled with a copy of the library's headers in which one line is changed: see ctest.cmake.

namespace differential {
namespace {

/// A chunk with one pin may leave the device.
struct lost_pin_world {
  using backend = cm::backend::host_arena;
  using manager = manager_on<backend, cm::transfer::no_prefetch>;
  static cm::backend::host_arena_options options(const setting& it)
  {
    return {.device_capacity = device_bytes(it), .host_capacity = host_bytes(it)};
  }
  template <class... Policies>
  static manager make(backend& memory, const cm::manager_options& options, const setting&, Policies... policies)
  {
    return manager{memory, options, policies...};
  }
};

}  // namespace

std::unique_ptr<subject> on_lost_pin(const setting& wanted)
{
  return std::make_unique<adapter<lost_pin_world>>(wanted);
}

}  // namespace differential
