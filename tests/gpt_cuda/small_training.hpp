// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <activation_mode.hpp>
#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/trace/chrome_sink.hpp>
#include <gpt_cuda/fake_training.hpp>
#include <gpt_cuda/trainer.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpt_cuda_test {

using gpt::activation_mode;
using gpt::gradient_choice;
using gpt::update_choice;
using support::fake_schedule;

inline constexpr chunkmem::bytes plenty{std::uint64_t{16} << 20};

/// The settings that differ from test to test.
struct variant {
  update_choice update = update_choice::cpu;
  gradient_choice gradient = gradient_choice::separate;
  gpt::extents size = support::small_gpt;
  chunkmem::bytes chunk{8192};
  activation_mode activations = activation_mode::recompute;
  chunkmem::activation::activation_plan plan{};
  chunkmem::trace::chrome_trace* trace = nullptr;
  double sample_ratio = 0;

  [[nodiscard]] gpt::trainer_settings settings() const
  {
    return {.schedule = {.highest = 1e-2f, .steps = 20},
            .seed = 3,
            .precision = chunkmem::dtype::bfloat16,
            .clip = 1.0f,
            .activations = activations,
            .plan = plan,
            .sample_ratio = sample_ratio,
            .update = update};
  }
};

/// A small model on a fake GPU of a given size.
struct world {
  explicit world(chunkmem::bytes device, const variant& chosen = {}, fake_schedule when = fake_schedule::earliest)
      : memory{{.device_capacity = device, .host_capacity = plenty, .when = when, .seed = 5}},
        m{memory, {.chunk_bytes = chosen.chunk}, gpt::either_gradient{chosen.gradient}, gpt::file_trace{chosen.trace}},
        net{gpt::cuda::declare_batch_model(m, chosen.size, chunkmem::dtype::bfloat16)},
        it{m, net, text, chosen.settings(), workers}
  {
  }
  ~world() { memory.drain(); }

  chunkmem::memory_requirement rehearse()
  {
    return m.rehearse([this] { (void)it.step(0); });
  }

  gpt::training_text text = support::some_text();
  support::fake_device memory;
  support::gpt_manager m;
  gpt::cuda::batch_model net;
  chunkmem::optimizer::thread_pool workers{2};
  gpt::cuda::batch_trainer<support::gpt_manager, support::fake_math> it;
};

struct outcome {
  std::vector<std::uint32_t> losses;
  std::uint64_t parameters = 0;
  std::vector<std::string> faults;

  friend bool operator==(const outcome&, const outcome&) = default;
};

/// Trains from the first weights on.
inline outcome train(world& on, std::size_t steps)
{
  const auto add = [](outcome& to, float loss) { to.losses.push_back(std::bit_cast<std::uint32_t>(loss)); };
  outcome out;
  (void)on.rehearse();
  gpt::fill(on.m, on.net, 3);
  add(out, on.it.evaluate());
  for (std::size_t i = 0; i < steps; ++i) add(out, on.it.step(i));
  add(out, on.it.evaluate());
  out.parameters = on.it.parameter_hash();
  on.memory.drain();
  out.faults = on.memory.faults();
  return out;
}
inline outcome train(chunkmem::bytes device, const variant& chosen, fake_schedule when, std::size_t steps = 4)
{
  world on{device, chosen, when};
  return train(on, steps);
}

}  // namespace gpt_cuda_test
