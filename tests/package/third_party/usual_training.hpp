// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/mixed_trainer.hpp>

/// A small training, to be run with the defaults and with user-defined policies: the bits must be the same.
struct trained {
  support::mixed::outcome left;  ///< losses, and every number of the model and its optimizer
  chunkmem::report moved;
};

constexpr chunkmem::manager_options usual_options{.chunk_bytes = chunkmem::bytes{4'096}};
constexpr chunkmem::bytes tight_device{30 * 4'096};  // the step works on about four times as much
constexpr chunkmem::bytes wide_host{256 * 4'096};

template <class Manager, class Backend>
trained train_on(Backend& memory)
{
  Manager m{memory, usual_options};
  support::mixed::trainer<Manager, Backend, float> trainer{m, memory, support::mixed::usual_recipe(4)};
  trained result{trainer.train(), {}};
  result.moved = m.report();
  return result;
}

/// With user-defined policies, on capped memory.
template <class... Policies>
trained train_with()
{
  using chunkmem::backend::host_arena;
  host_arena memory{{.device_capacity = tight_device, .host_capacity = wide_host}};
  return train_on<chunkmem::manager<host_arena, Policies...>>(memory);
}

/// With all the defaults.
const trained& usual_training();
