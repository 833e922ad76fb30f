// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <gpu/dense_training.hpp>

namespace gpu {

namespace {

using arena = chunkmem::backend::host_arena;

struct host_training {
  const dense_setting& setting;
  template <class Gradient, class Element>
  [[nodiscard]] std::vector<std::byte> with() const
  {
    using manager = chunkmem::manager<arena, Gradient>;
    using trainer = dense_trainer<manager, chunkmem::optimizer::loop_launcher, host_updates<manager>, Element>;
    return train_dense<arena, manager, trainer>(chunkmem::backend::host_arena_options{}, setting.device,
                                                plain_steps{setting});
  }
};

}  // namespace

std::vector<std::byte> train_on_host(const dense_setting& setting)
{
  return with_parameters_of(setting, host_training{setting});
}

}  // namespace gpu
