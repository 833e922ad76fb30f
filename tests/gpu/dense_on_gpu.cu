// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>
#include <chunkmem/optimizer/launch_kernels.cuh>
#include <gpu/dense_training.hpp>

namespace gpu {

namespace {

using memory_of_gpu = chunkmem::backend::cuda_device<chunkmem::backend::cuda_runtime>;
using chunkmem::optimizer::cuda_launcher;

template <class Manager>
using updates_on_gpu = device_updates<Manager, cuda_launcher>;

/// @tparam Updates   of a manager
/// @tparam Run       how the steps are taken
template <template <class> class Updates, class Run>
struct training {
  const dense_setting& setting;
  Run run;
  template <class Gradient, class Element>
  [[nodiscard]] std::vector<std::byte> with() const
  {
    using manager = chunkmem::manager<memory_of_gpu, Gradient>;
    using trainer = dense_trainer<manager, cuda_launcher, Updates<manager>, Element>;
    return train_dense<memory_of_gpu, manager, trainer>(chunkmem::backend::cuda_device_options{}, setting.device, run);
  }
};

}  // namespace

std::vector<std::byte> train_on_gpu(const dense_setting& setting)
{
  return with_parameters_of(setting, training<host_updates, plain_steps>{setting, {setting}});
}

std::vector<std::byte> train_and_update_on_gpu(const dense_setting& setting)
{
  return with_parameters_of(setting, training<updates_on_gpu, plain_steps>{setting, {setting}});
}

std::vector<std::byte> train_by_graph_on_gpu(const dense_setting& setting)
{
  return with_parameters_of(setting, training<updates_on_gpu, replayed_steps>{setting, {setting}});
}

}  // namespace gpu
