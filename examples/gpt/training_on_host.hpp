// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "budget.hpp"
#include "export_file.hpp"
#include "sampler.hpp"
#include "trainer.hpp"
#include "virtual_clocks.hpp"

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace gpt {

/// The training on the CPU: a slice of host memory stands in for the device, and the calling thread computes.
/// @tparam Manager   of a host_arena, or of virtual_clocks: then nothing is computed
template <class Manager>
struct training_on_host {
  using backend_type = std::remove_cvref_t<decltype(std::declval<Manager&>().backend())>;
  using manager_type = Manager;
  using model_type = model;
  using trainer_type = trainer<Manager>;

  [[nodiscard]] static model_type declare(Manager& manager, const extents& size, chunkmem::dtype precision)
  {
    return gpt::declare(manager, size, precision);
  }
  [[nodiscard]] static chunkmem::activation::activation_plan plan(activation_mode choice, const options& chosen,
                                                                  chunkmem::bytes device)
  {
    return plan_layer_runs(choice, chosen.size, device);
  }
  static constexpr bool foresees = true;
  [[nodiscard]] static backend_type memory(const training_setup& setup, chunkmem::bytes device, chunkmem::bytes host)
  {
    if constexpr (has_clocks<Manager>)
      return backend_type{device, host, *setup.rates};
    else
      return backend_type{{.device_capacity = device, .host_capacity = host}};
  }
  [[nodiscard]] static std::string sample(trainer_type& model, std::string_view prompt, std::size_t count,
                                          std::uint64_t seed)
  {
    return sampler<Manager>{model}.write(prompt, count, seed);
  }
  static constexpr bool places_states = true;
  static constexpr bool exports = !has_clocks<Manager>;
  static void write_export(std::ostream& out, const trainer_type& from, std::size_t steps)
  {
    export_file<Manager>{out, from}.write(steps);
  }
  /// The largest tensor, which a chunk has to hold [bytes].
  [[nodiscard]] static std::uint64_t largest_tensor_bytes(const extents& size) { return size.largest_tensor_bytes(); }
  [[nodiscard]] static memory_limits limits() { return {.host = machine_memory(), .device = {}}; }
};

}  // namespace gpt
