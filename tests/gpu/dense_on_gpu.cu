#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>
#include <chunkmem/optimizer/launch_bodies.cuh>
#include <gpu/dense_training.hpp>

namespace gpu {

namespace {

using memory_of_gpu = chunkmem::backend::cuda_device<chunkmem::backend::cuda_runtime>;

struct gpu_training {
  const dense_setting& setting;
  template <class Gradient, class Element>
  [[nodiscard]] std::vector<std::byte> with() const
  {
    using manager = chunkmem::manager<memory_of_gpu, Gradient>;
    using trainer = dense_trainer<manager, chunkmem::optimizer::cuda_launcher, host_updates<manager>, Element>;
    return train_dense<memory_of_gpu, manager, trainer>(chunkmem::backend::cuda_device_options{}, setting.device, plain_steps{setting});
  }
};

}  // namespace

std::vector<std::byte> train_on_gpu(const dense_setting& setting)
{
  return with_parameters_of(setting, gpu_training{setting});
}

}  // namespace gpu
