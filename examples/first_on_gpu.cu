// SPDX-License-Identifier: Apache-2.0
// Trains eight layers on a GPU, Adam too: first in a quarter of the memory, then in plenty. The losses are the same.
#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_optimizer.hpp>

#include <algorithm>
#include <cstdio>
namespace cm = chunkmem;
using namespace cm::literals;
constexpr std::uint32_t layers = 8, width = 128;  // weights 512 KiB; gradients and Adam's two states, 1.5 MiB more
struct product {  // a kernel: its data, its number of indices, and the work of one. Here: out = in + w * in
  const float *w, *in;
  float* out;
  std::uint32_t row, column;  // strides of w: swapped, they transpose w
  CHUNKMEM_HOST_DEVICE std::uint64_t count() const { return width; }
  CHUNKMEM_HOST_DEVICE product prepared() const { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t i) const
  {
    out[i] = in[i];
    for (std::uint64_t j = 0; j < width; ++j) out[i] = cm::strict_fp::fused(w[i * row + j * column], in[j], out[i]);
  }
};
struct slope {  // of a weight: error times input
  float* gradient;
  const float *error, *in;
  CHUNKMEM_HOST_DEVICE std::uint64_t count() const { return width * width; }
  CHUNKMEM_HOST_DEVICE slope prepared() const { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t i) const { gradient[i] = error[i / width] * in[i % width]; }
};
template <class Launcher, class Device>
float train(Device& memory)
{
  cm::manager<Device> m{memory, {.chunk_bytes = 64_KiB}};
  const auto weights = m.template add_stacked<float>(layers, {width, width}, cm::role::parameter);
  const auto x = m.template add_stacked<float>(layers + 1, {width}, cm::role::buffer);       // x[l] goes into layer l
  const auto errors = m.template add_stacked<float>(layers + 1, {width}, cm::role::buffer);  // and its error comes out
  cm::optimizer::device_optimizer<cm::manager<Device>, cm::optimizer::adam, Launcher> adam{m, cm::optimizer::adam{}};
  const auto host = [&](auto it, auto how) { return m.acquire(it, how, cm::memory_location::host); };
  const auto gpu = [&](auto it, auto how) { return m.acquire(it, how, cm::agent::compute); };  // no wait of the host
  for (std::uint32_t l = 0; l < layers; ++l) std::ranges::fill(host(weights.slice(l), cm::access::write).span(), 0.F);
  float loss = 0;
  for (std::uint32_t step = 0; step < 50; ++step, std::printf("loss %g\n", loss)) {
    const auto iteration = m.iteration();  // the first one is recorded, and the others follow a plan
    for (auto i = step % 4; float& it : host(x.slice(0), cm::access::write).span()) it = i-- == 0 ? 1 : 0;
    for (std::uint32_t l = 0; l < layers; ++l) {
      const auto w = gpu(weights.slice(l), cm::access::read), in = gpu(x.slice(l), cm::access::read);
      const auto out = gpu(x.slice(l + 1), cm::access::write);
      Launcher{}(memory, cm::agent::compute, product{w.data(), in.data(), out.data(), width, 1});  // enqueues it
    }
    {
      const auto y = host(x.slice(layers), cm::access::read);  // waits for the kernels
      const auto error = host(errors.slice(layers), cm::access::write);
      std::ranges::transform(y.span(), error.data(), [](float it) { return it - 1; });  // the target is 1 everywhere
      for (loss = 0; const float it : error.span()) loss += it * it / 2;
    }
    for (std::uint32_t l = layers; l-- > 0;) {
      const auto in = gpu(x.slice(l), cm::access::read), error = gpu(errors.slice(l + 1), cm::access::read);
      auto w = gpu(weights.slice(l), cm::access::read);
      const auto to = gpu(errors.slice(l), cm::access::write);
      Launcher{}(memory, cm::agent::compute, product{w.data(), error.data(), to.data(), 1, width});
      auto gradient = m.gradient(std::move(w));  // ends the weight's pin
      Launcher{}(memory, cm::agent::compute, slope{gradient.data(), error.data(), in.data()});
      m.gradient_done(std::move(gradient));
    }
    adam.step({.learning_rate = 1e-3F});
  }
  return loss;
}
#ifdef __CUDACC__
#include <chunkmem/backend/cuda_runtime.hpp>
#include <chunkmem/optimizer/launch_kernels.cuh>
int main()
{
  cm::backend::cuda_device<cm::backend::cuda_runtime> little{{.device_capacity = 512_KiB, .host_capacity = 4_MiB}};
  cm::backend::cuda_device<cm::backend::cuda_runtime> plenty{{.device_capacity = 4_MiB, .host_capacity = 4_MiB}};
  return train<cm::optimizer::cuda_launcher>(little) == train<cm::optimizer::cuda_launcher>(plenty) ? 0 : 1;
}
#endif
