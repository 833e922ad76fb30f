// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/loop_sampling.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <gpt_cuda/product_kernel.hpp>
#include <gpt_cuda/team.hpp>
#include <support/fake_cuda.hpp>
#include <support/kernel_launcher.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace support {

/// Runs a body of the GPT in loops, on the calling thread.
template <class Body>
void run_in_loops(const Body& body)
{
  const std::uint64_t count = body.count();
  for (std::uint64_t index = 0; index < count; ++index)
    if constexpr (std::invocable<const Body&, const gpt::cuda::looped_team&, std::uint64_t>)
      body(gpt::cuda::looped_team{}, index);
    else
      body(index);
}

/// The GPT's kernels and products on the threads of the fake GPU: in stream order, refused like kernels.
///
/// Products are loops. A product whose shape was not prepared is refused: on a GPU its algorithm would have to be
/// chosen in the middle of a step.
class fake_math {
 public:
  using launcher = kernel_launcher;
  using sampler = chunkmem::activation::loop_sampling<kernel_launcher>;
  static constexpr std::uint64_t workspace_bytes = 256;

  template <class Backend, class Body>
  void launch(Backend& backend, chunkmem::agent on_stream, const Body& body) const
  {
    if (body.count() == 0) return;
    backend.launch(on_stream,
                   [&body](fake_stream_handle stream) { launch_kernel(stream, [body] { run_in_loops(body); }); });
  }

  void prepare(const gpt::cuda::product_shape& shape)
  {
    if (!is_known(shape)) known_.push_back(shape);
  }

  template <class Backend>
  void multiply(Backend& backend, chunkmem::agent stream, const gpt::cuda::product& what, const void*) const
  {
    if (!is_known(what.shape)) throw std::logic_error{"a product of a shape that no rehearsal had"};
    launch(backend, stream, gpt::cuda::product_kernel{what});
  }

 private:
  [[nodiscard]] bool is_known(const gpt::cuda::product_shape& shape) const
  {
    return std::find(known_.begin(), known_.end(), shape) != known_.end();
  }

  std::vector<gpt::cuda::product_shape> known_;
};

}  // namespace support
