// SPDX-License-Identifier: Apache-2.0
// Trains eight layers with Adam, first in little memory and then in plenty. The losses are the same, bit for bit.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>

#include <array>
#include <iostream>

namespace cm = chunkmem;
using namespace cm::literals;
constexpr std::uint32_t layers = 8, width = 256;  // weights 2 MiB; gradients and Adam's two states, 6 MiB more
using row = std::array<float, width>;

double train(cm::bytes device)
{
  cm::backend::host_arena memory{{.device_capacity = device, .host_capacity = 16_MiB}};
  cm::manager<cm::backend::host_arena> m{memory, {.chunk_bytes = 256_KiB}};
  cm::optimizer::adam adam;
  m.use(adam);
  const auto weights = m.add_stacked<float>(layers, {width, width}, cm::role::parameter);
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    for (float& w : m.acquire(weights.slice(layer), cm::access::write).span()) w = 0.0F;

  double loss = 0;
  for (int step = 0; step < 50; ++step) {
    const auto iteration = m.iteration();  // the first one is recorded, and the others follow a plan
    std::array<row, layers + 1> x{};       // x[l] goes into layer l, and x[l + 1] = x[l] + weights[l] * x[l] comes out
    x[0][static_cast<std::size_t>(step) % 4] = 1.0F;
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      const auto pin = m.acquire(weights.slice(layer), cm::access::read);  // its bytes stay in place while pin lives
      for (std::size_t i = 0; i < width * width; ++i) x[layer + 1][i / width] += pin.data()[i] * x[layer][i % width];
      for (std::size_t i = 0; i < width; ++i) x[layer + 1][i] += x[layer][i];
    }
    row error = x[layers];  // the target is 1 everywhere, the loss half the sum of squares
    loss = 0;
    for (float& e : error) e -= 1.0F, loss += 0.5 * e * e;
    for (std::uint32_t layer = layers; layer-- > 0;) {
      auto pin = m.acquire(weights.slice(layer), cm::access::read);
      row below = error;
      for (std::size_t i = 0; i < width * width; ++i) below[i % width] += pin.data()[i] * error[i / width];
      auto g = m.gradient(std::move(pin));  // ends the weight's pin
      const float beta = g.beta();          // 0 at the first write of a step, else 1: set, or add
      for (std::size_t i = 0; i < width * width; ++i)
        g.data()[i] = (beta == 0 ? 0 : g.data()[i]) + error[i / width] * x[layer][i % width];
      m.gradient_done(std::move(g));
      error = below;
    }
    cm::optimizer::step(m, adam, {.learning_rate = 1e-3F});
  }
  std::cout << "loss " << loss << "\n" << m.report() << '\n';  // peaks, bytes moved, waits by cause
  return loss;
}

int main()
{
  const double loss = train(1_MiB);  // an eighth of what the model needs; at the first step the loss is about 128
  return loss < 5.0 && loss == train(16_MiB) ? 0 : 1;
}
