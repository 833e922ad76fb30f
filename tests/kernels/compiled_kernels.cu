// SPDX-License-Identifier: Apache-2.0
// Every kernel of a device step, for whatever reads what the compiler makes of them: this file is only compiled.
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_optimizer.hpp>
#include <chunkmem/optimizer/launch_kernels.cuh>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/update_kernel.hpp>

#include <cstdint>
#include <utility>

namespace {

/// As much of a backend as a launcher sees.
struct launching_backend {
  template <class Callable>
  void launch(chunkmem::agent, Callable&& work)
  {
    std::forward<Callable>(work)(stream);
  }
  cudaStream_t stream{};
};

/// A body of a user, whose name no linker knows.
struct counting_kernel {
  std::uint64_t* to;
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return 3; }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const counting_kernel& prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const noexcept { to[index] = index; }
};

}  // namespace

namespace chunkmem::inline v0 {

template class optimizer::device_step<optimizer::adam, launching_backend, optimizer::cuda_launcher>;
template class optimizer::device_step<optimizer::sgd, launching_backend, optimizer::cuda_launcher>;
template void optimizer::cuda_launcher::operator()(cudaStream_t, const optimizer::cast_kernel&) const;

}  // namespace chunkmem::inline v0

void count_on(cudaStream_t stream, std::uint64_t* to)
{
  chunkmem::optimizer::cuda_launcher{}(stream, counting_kernel{to});
}
