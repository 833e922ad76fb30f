// SPDX-License-Identifier: Apache-2.0
// Every kernel of a device step and of sampled inputs, for whatever reads what the compiler makes of them: this file is
// only compiled.
#include <chunkmem/activation/cub_sampling.cuh>
#include <chunkmem/activation/norm_cache.hpp>
#include <chunkmem/activation/sampling_on_stream.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_optimizer.hpp>
#include <chunkmem/optimizer/launch_kernels.cuh>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/update_kernel.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace {

/// The part of a backend that a launcher uses.
struct launching_backend {
  template <class Callable>
  void launch(chunkmem::agent, Callable&& work)
  {
    std::forward<Callable>(work)(stream);
  }
  cudaStream_t stream{};
};

/// The same with the calls by which norms travel.
struct sampling_backend : launching_backend {
  static void copy(std::byte*, const std::byte*, chunkmem::bytes, chunkmem::agent) {}
  [[nodiscard]] static chunkmem::event record(chunkmem::agent) { return {}; }
  static void wait(chunkmem::agent, chunkmem::event) {}
};

/// The part of a manager that the passes of a sampled input use.
struct leasing_manager {
  struct lease_type {
    [[nodiscard]] std::byte* data() const { return nullptr; }
  };
  [[nodiscard]] static lease_type lease(chunkmem::tier, chunkmem::bytes, chunkmem::agent) { return {}; }
  [[nodiscard]] static bool rehearsing() { return false; }
  [[nodiscard]] sampling_backend& backend() { return gpu; }
  sampling_backend gpu;
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

namespace activation::detail {

using sampling_passes = stream_sampling<leasing_manager, cub_sampling<optimizer::cuda_launcher>>;
template class stream_sampling<leasing_manager, cub_sampling<optimizer::cuda_launcher>>;
template void sampling_passes::keep(choice_memory&, const sampled_batch&, std::span<const float>, std::uint64_t, float*,
                                    std::span<std::int32_t>, std::span<float>, agent);
template void sampling_passes::keep(choice_memory&, const sampled_batch&, std::span<const bf16>, std::uint64_t, bf16*,
                                    std::span<std::int32_t>, std::span<float>, agent);
template void sampling_passes::keep(choice_memory&, const sampled_batch&, std::span<const fp16>, std::uint64_t, fp16*,
                                    std::span<std::int32_t>, std::span<float>, agent);
template void sampling_passes::scale(const slopes_memory&, std::span<const float>, std::uint64_t, bool,
                                     const std::int32_t*, const float*, std::uint64_t, agent);
template void sampling_passes::scale(const slopes_memory&, std::span<const bf16>, std::uint64_t, bool,
                                     const std::int32_t*, const float*, std::uint64_t, agent);
template void sampling_passes::scale(const slopes_memory&, std::span<const fp16>, std::uint64_t, bool,
                                     const std::int32_t*, const float*, std::uint64_t, agent);

}  // namespace activation::detail

}  // namespace chunkmem::inline v0

void count_on(cudaStream_t stream, std::uint64_t* to)
{
  chunkmem::optimizer::cuda_launcher{}(stream, counting_kernel{to});
}
