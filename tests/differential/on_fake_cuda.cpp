// SPDX-License-Identifier: Apache-2.0
#include "adapter.hpp"

#include <support/fake_device.hpp>

namespace differential {
namespace {

/// The calling thread cannot read this device: kernels do all work there.
struct cuda_world {
  using backend = support::fake_device;
  using manager = manager_on<backend, any_transfer>;
  static support::fake_device_options options(const setting& it)
  {
    return {.device_capacity = device_bytes(it),
            .host_capacity = host_bytes(it),
            .when = static_cast<support::fake_schedule>(it.schedule % 3),
            .seed = it.seed};
  }
  template <class... Policies>
  static manager make(backend& memory, const cm::manager_options& options, const setting& it, Policies... policies)
  {
    return manager{memory, options, transfer_of(it), policies...};
  }
};

}  // namespace

std::unique_ptr<subject> on_fake_cuda(const setting& wanted)
{
  return std::make_unique<adapter<cuda_world>>(wanted);
}

}  // namespace differential
