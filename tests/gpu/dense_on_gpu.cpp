// SPDX-License-Identifier: Apache-2.0
#include <gpu/dense_training.hpp>
#include <gpu/round_trip.hpp>
#include <gpu/start.hpp>

namespace gpu {

namespace {

template <class Manager>
using updates_on_gpu = device_updates<Manager, kernel_starter>;

/// @tparam Updates   of a manager
/// @tparam Run       how the steps are taken
template <template <class> class Updates, class Run>
struct training {
  const dense_setting& setting;
  Run run;
  template <class Element>
  [[nodiscard]] std::vector<std::byte> with() const
  {
    return train_dense<memory_of_gpu, kernel_starter, Updates, Element>(chunkmem::backend::cuda_device_options{},
                                                                        setting, run);
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
