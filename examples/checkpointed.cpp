// SPDX-License-Identifier: Apache-2.0
// Trains eight blocks with dropout where activations have three eighths of their bytes on the device. Some stay, some
// go to the host and come back, some are computed again. The losses are those of a device that holds all of them.
#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/checkpointed.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/transfer/planned.hpp>

#include <array>
#include <cstdint>
#include <iostream>
#include <string>

namespace cm = chunkmem;
using namespace cm::literals;
using manager = cm::manager<cm::backend::host_arena, cm::transfer::planned>;
using network = cm::activation::checkpointed<manager>;
constexpr std::uint32_t blocks = 8, width = 64, rows = 64;
using matrix = std::array<float, rows * width>;

/// y = x + dropout(relu(x * weight)), and its backward pass.
struct layer {
  manager& m;
  cm::tensor<float> weight, before, hidden, output, slope;  // slope: the gradient of the residual stream
  bool first, last;
  double& loss;

  /// 0 for a quarter of the elements. Each micro-batch drops another quarter; a block that runs again drops the same
  /// one.
  template <class Run>
  static std::array<std::uint16_t, rows * width> drawn(const Run& run)
  {
    std::array<std::uint16_t, rows * width> bits;
    cm::random_bits(run.random(), 0, bits);
    for (std::uint16_t& b : bits) b &= 3;
    return bits;
  }
  template <class Run>
  matrix input(Run& run) const
  {
    matrix x;
    if (first) return x.fill(0.5F), x;
    const auto pin = run.input(before);
    return std::copy_n(pin.data(), x.size(), x.begin()), x;
  }
  template <class Run>
  void forward(Run& run) const
  {
    const matrix x = input(run);
    const auto w = m.acquire(weight, cm::access::read);
    const auto h = run.save(hidden);
    const auto y = run.save(output);
    const auto kept = drawn(run);
    for (std::size_t i = 0; i < x.size(); ++i) {
      float sum = 0;
      for (std::size_t k = 0; k < width; ++k) sum += x[i / width * width + k] * w.data()[k * width + i % width];
      h.data()[i] = sum;
      y.data()[i] = x[i] + (kept[i] != 0 && sum > 0 ? sum : 0);
    }
  }
  template <class Run>
  void backward(Run& run) const
  {
    const matrix x = input(run);
    matrix dy, dh, dx;
    if (last) {  // the target is 1 everywhere, the loss half the mean of squares
      const auto y = run.restore(output);
      for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = (y.data()[i] - 1) / rows;
      loss = 0;
      for (const float d : dy) loss += 0.5 * d * d * rows;
    } else {
      const auto pin = m.acquire(slope, cm::access::read);
      std::copy_n(pin.data(), dy.size(), dy.begin());
    }
    const auto kept = drawn(run);
    const auto h = run.restore(hidden);
    for (std::size_t i = 0; i < dy.size(); ++i) dh[i] = kept[i] != 0 && h.data()[i] > 0 ? dy[i] : 0;
    auto w = m.acquire(weight, cm::access::read);
    for (std::size_t i = 0; i < dx.size(); ++i) {
      dx[i] = dy[i];
      for (std::size_t k = 0; k < width; ++k) dx[i] += dh[i / width * width + k] * w.data()[i % width * width + k];
    }
    auto g = m.gradient(std::move(w));
    const float beta = g.beta();
    for (std::size_t i = 0; i < width * width; ++i) {
      float sum = beta == 0 ? 0 : g.data()[i];
      for (std::size_t r = 0; r < rows; ++r) sum += x[r * width + i / width] * dh[r * width + i % width];
      g.data()[i] = sum;
    }
    m.gradient_done(std::move(g));
    if (first) return m.drop(slope);
    std::copy_n(dx.begin(), dx.size(), m.acquire(slope, cm::access::write).span().begin());
  }
};

double train(cm::bytes device, cm::bytes for_activations)
{
  cm::backend::host_arena memory{{.device_capacity = device, .host_capacity = 16_MiB}};
  manager m{memory, {.chunk_bytes = 16_KiB}};
  cm::optimizer::adam adam;
  m.use(adam);
  double loss = 0;
  network net{
      m,
      {.budget = {.device = for_activations, .to_host_bytes_per_second = 1.2e7, .to_device_bytes_per_second = 1.2e7},
       .seed = 42,
       .name = "net"}};
  const auto weights = m.add_stacked<float>(blocks, {width, width}, cm::role::parameter);
  const auto slope = m.add<float>({rows, width}, cm::role::activation);
  cm::tensor<float> before;
  for (std::uint32_t index = 0; index < blocks; ++index) {
    auto& block = net.add("layer " + std::to_string(index));
    const auto hidden = block.saves<float>({rows, width});
    const auto output = block.outputs<float>({rows, width});
    const layer made{m, weights.slice(index), before, hidden, output, slope, index == 0, index + 1 == blocks, loss};
    block.forward = [made](auto& run) { made.forward(run); };
    block.backward = [made](auto& run) { made.backward(run); };
    block.reads_input = true;
    block.forward_seconds = 1e-3;  // the first iteration measures times that are not given
    block.backward_seconds = 2e-3;
    before = output;
  }
  for (std::uint32_t index = 0; index < blocks; ++index)
    for (float value = 0; float& w : m.acquire(weights.slice(index), cm::access::write).span())
      w = 0.001F * static_cast<float>(static_cast<int>(value += 7.0F) % 13 - 6);
  for (std::uint64_t step = 0; step < 30; ++step) {
    auto iteration = net.iteration();  // in place of m.iteration()
    net.run(iteration, {.step = step});
    cm::optimizer::step(m, adam, {.learning_rate = 1e-3F});
  }
  std::cout << "loss " << loss << '\n' << cm::activation::report_of(net.plan()) << m.report() << '\n';
  return loss;
}

int main()
{
  const double loss = train(256_KiB, 96_KiB);
  return loss < 4.0 && loss == train(16_MiB, 16_MiB) ? 0 : 1;
}
