// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <gpu/dense_training.hpp>

namespace gpu {

namespace {

using arena = chunkmem::backend::host_arena;

struct host_training {
  const dense_setting& setting;
  template <class Element>
  [[nodiscard]] std::vector<std::byte> with() const
  {
    return train_dense<arena, chunkmem::optimizer::loop_launcher, host_updates, Element>(
        chunkmem::backend::host_arena_options{}, setting, plain_steps{setting});
  }
};

}  // namespace

std::vector<std::byte> train_on_host(const dense_setting& setting)
{
  return with_parameters_of(setting, host_training{setting});
}

}  // namespace gpu
