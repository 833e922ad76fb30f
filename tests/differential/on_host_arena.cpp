// SPDX-License-Identifier: Apache-2.0
#include "adapter.hpp"

#include <chunkmem/backend/host_arena.hpp>

namespace differential {
namespace {

/// With demand paging by type: iterations are not planned at all.
struct arena_world {
  using backend = cm::backend::host_arena;
  using manager = manager_on<backend, cm::transfer::no_prefetch>;
  static cm::backend::host_arena_options options(const setting& it)
  {
    return {.device_capacity = device_bytes(it), .host_capacity = host_bytes(it), .async_compute = it.async_compute};
  }
  template <class... Policies>
  static manager make(backend& memory, const cm::manager_options& options, const setting&, Policies... policies)
  {
    return manager{memory, options, policies...};
  }
};

}  // namespace

std::unique_ptr<subject> on_host_arena(const setting& wanted)
{
  return std::make_unique<adapter<arena_world>>(wanted);
}

}  // namespace differential
