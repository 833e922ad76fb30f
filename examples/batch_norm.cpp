// SPDX-License-Identifier: Apache-2.0
// Batch normalisation in blocks that may run forward twice. The statistics of a batch are saved and computed again like
// any activation. The running statistics are a buffer: they outlive the step, so they change in the first run alone.
// Training has the same bits whether activations are kept or computed again.
#include <chunkmem/activation/checkpointed.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace cm = chunkmem;
using namespace cm::literals;
using manager = cm::manager<cm::backend::host_arena, cm::transfer::no_prefetch>;
using network_type = cm::activation::checkpointed<manager, cm::activation::keep_all>;
constexpr std::uint32_t blocks = 4, rows = 16, width = 8;

/// y = relu(gamma * normalised(x)), and its backward pass.
struct norm_block {
  using run_type = network_type::block_type::run_type;

  manager& m;
  cm::tensor<float> gamma;                  // role::parameter
  cm::tensor<float> running;                // role::buffer: a mean and a variance for each column
  cm::tensor<float> before, normal, scale;  // the input; what is saved: normalised numbers, 1 / deviation
  cm::tensor<float> output, slope;
  bool last;

  void forward(run_type& run) const
  {
    const auto x = run.input(before);
    const auto weight = m.acquire(gamma, cm::access::read);
    const auto z = run.save(normal);
    const auto s = run.save(scale);
    const auto y = run.save(output);
    float means[width], variances[width];
    for (std::uint32_t c = 0; c < width; ++c) {
      float mean = 0, variance = 0;
      for (std::uint32_t r = 0; r < rows; ++r) mean += x.data()[r * width + c] / rows;
      for (std::uint32_t r = 0; r < rows; ++r) {
        const float off = x.data()[r * width + c] - mean;
        variance += off * off / rows;
      }
      s.data()[c] = 1 / std::sqrt(variance + 1e-5F);
      for (std::uint32_t i = c; i < rows * width; i += width) {
        z.data()[i] = (x.data()[i] - mean) * s.data()[c];
        y.data()[i] = std::max(0.0F, weight.data()[c] * z.data()[i]);
      }
      means[c] = mean, variances[c] = variance;
    }
    if (run.is_again()) return;  // the running statistics contain this batch already
    const auto all = m.acquire(running, cm::access::read_write);
    for (std::uint32_t c = 0; c < width; ++c) {
      all.data()[c] += 0.1F * (means[c] - all.data()[c]);
      all.data()[width + c] += 0.1F * (variances[c] - all.data()[width + c]);
    }
  }
  void backward(run_type& run) const
  {
    auto weight = m.acquire(gamma, cm::access::read);
    const auto z = run.restore(normal);
    const auto s = run.restore(scale);
    const auto y = run.restore(output);
    const auto d = last ? m.acquire(slope, cm::access::write) : m.acquire(slope, cm::access::read_write);
    float of_gamma[width];
    for (std::uint32_t c = 0; c < width; ++c) {
      float sum = 0, along = 0;
      of_gamma[c] = 0;
      for (std::uint32_t i = c; i < rows * width; i += width) {
        const float dy = last ? y.data()[i] - 0.5F : d.data()[i];  // the loss is half the squared distance from 1/2
        const float masked = y.data()[i] > 0 ? dy : 0;
        of_gamma[c] += masked * z.data()[i];
        d.data()[i] = masked * weight.data()[c];
        sum += d.data()[i];
        along += d.data()[i] * z.data()[i];
      }
      for (std::uint32_t i = c; i < rows * width; i += width)
        d.data()[i] = s.data()[c] * (d.data()[i] - (sum + z.data()[i] * along) / rows);
    }
    auto g = m.gradient(std::move(weight));
    const float beta = g.beta();
    for (std::uint32_t c = 0; c < width; ++c) g.data()[c] = of_gamma[c] + (beta != 0 ? beta * g.data()[c] : 0);
    m.gradient_done(std::move(g));
  }
};

/// @param again   all blocks but the last one run forward twice in each step
/// @return        all weights and running statistics after training
std::vector<float> train(bool again)
{
  cm::backend::host_arena memory{{.device_capacity = 64_KiB, .host_capacity = 1_MiB}};
  manager m{memory, {.chunk_bytes = 1_KiB}};
  cm::optimizer::sgd sgd;
  m.use(sgd);
  const cm::activation::activation_budget budget{
      .device = 32_KiB, .to_host_bytes_per_second = 1e9, .to_device_bytes_per_second = 1e9};
  network_type network{m, {.budget = budget}};
  const auto gammas = m.add_stacked<float>(blocks, {width}, cm::role::parameter);
  const auto running = m.add_stacked<float>(blocks, {2 * width}, cm::role::buffer);
  const auto batch = m.add<float>({rows, width}, cm::role::activation);
  const auto slope = m.add<float>({rows, width}, cm::role::activation);
  cm::tensor<float> before = batch;
  for (std::uint32_t index = 0; index < blocks; ++index) {
    auto& block = network.add("norm " + std::to_string(index));
    const auto normal = block.saves<float>({rows, width});
    const auto scale = block.saves<float>({width});
    const auto output = block.outputs<float>({rows, width});
    const norm_block made{m,     gammas.slice(index), running.slice(index), before, normal, scale, output,
                          slope, index + 1 == blocks};
    block.forward = [made](auto& run) { made.forward(run); };
    block.backward = [made](auto& run) { made.backward(run); };
    block.forward_seconds = 1e-3;
    block.backward_seconds = 2e-3;
    before = output;
  }
  for (std::uint32_t index = 0; index < blocks; ++index) {
    for (float& it : m.acquire(gammas.slice(index), cm::access::write).span()) it = 1.0F;
    for (float& it : m.acquire(running.slice(index), cm::access::write).span()) it = 0.0F;
  }
  if (again) network.use(cm::activation::recompute_all{}.plan(network.chain(), budget));
  for (std::uint64_t step = 0; step < 20; ++step) {
    auto iteration = network.iteration();
    {
      const auto x = m.acquire(batch, cm::access::write);
      for (std::uint32_t i = 0; i < rows * width; ++i)
        x.data()[i] = static_cast<float>((i * 37 + step * 101) % 64) / 16.0F - 1.0F;
    }
    network.run(iteration, {.step = step});
    for (const auto& each : {batch, slope}) m.drop(each);
    cm::optimizer::step(m, sgd, {.learning_rate = 1e-2F});
  }
  std::vector<float> left;
  for (std::uint32_t index = 0; index < blocks; ++index)
    for (const auto& each : {gammas.slice(index), running.slice(index)})
      for (const float it : m.acquire(each, cm::access::read).span()) left.push_back(it);
  return left;
}

int main()
{
  const std::vector<float> kept = train(false);
  const std::vector<float> again = train(true);
  std::cout << "running mean of the first block: " << kept[width] << " kept, " << again[width] << " computed again\n";
  const bool is_trained = kept[(blocks - 1) * 3 * width] != 1.0F && kept[width] != 0.0F;
  return is_trained && kept == again ? EXIT_SUCCESS : EXIT_FAILURE;
}
