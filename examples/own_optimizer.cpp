// SPDX-License-Identifier: Apache-2.0
// A user-defined optimizer: Lion (Chen et al. 2023, arXiv 2302.06675) in a dozen lines. Its kernel sees only float32
// spans; the step widens, unscales, clips, rounds, and keeps masters of 16-bit parameters.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>

#include <cmath>
#include <cstddef>
#include <iostream>
#include <span>
#include <string_view>
#include <utility>

namespace cm = chunkmem;
using namespace cm::literals;

/// Steps by the sign of a smoothed gradient: one list for each parameter.
struct lion {
  static constexpr std::string_view name = "lion";
  static std::span<const cm::list_spec> lists() noexcept
  {
    static constexpr cm::list_spec specs[] = {{"lion/momentum"}, cm::master_list};
    return specs;
  }
  void update(const cm::optimizer::update_spans& spans, const cm::optimizer::step_settings& settings) const noexcept
  {
    for (std::size_t index = 0; index < spans.parameter.size(); ++index) {
      float& momentum = spans.lists[0][index];
      // a product feeds a sum through fma only
      const float direction = std::fma(0.9F, momentum, 0.1F * spans.gradient[index]);
      momentum = std::fma(0.99F, momentum, 0.01F * spans.gradient[index]);
      if (direction != 0.0F) spans.parameter[index] -= std::copysign(settings.learning_rate, direction);
    }
  }
  cm::optimizer::step_progress progress;
};
static_assert(cm::optimizer_kernel<lion>);

int main()
{
  cm::backend::host_arena memory{{.device_capacity = 1_MiB, .host_capacity = 16_MiB}};
  cm::manager<cm::backend::host_arena> m{memory, {.chunk_bytes = 256_KiB}};
  lion kernel;
  m.use(kernel);
  const auto weights = m.add_stacked<cm::bf16>(8, {256, 256}, cm::role::parameter);
  for (std::uint32_t index = 0; index < 8; ++index)
    for (cm::bf16& x : m.acquire(weights.slice(index), cm::access::write).span()) x = cm::round_to<cm::bf16>(1.0F);

  cm::optimizer::thread_pool workers{2};
  for (int step = 0; step < 128; ++step) {  // the loss is half the sum of squares: each gradient is its weight
    const auto iteration = m.iteration();
    for (std::uint32_t index = 0; index < 8; ++index) {
      const auto weight = m.acquire(weights.slice(index), cm::access::read);
      auto gradient = m.gradient(weights.slice(index));
      for (std::size_t i = 0; i < gradient.span().size(); ++i) gradient.span()[i] = weight.span()[i];
      m.gradient_done(std::move(gradient));
    }
    cm::optimizer::step(m, kernel, {.learning_rate = 0x1p-8F}, workers);
  }

  const float last = cm::to_float(m.acquire(weights.slice(7), cm::access::read).span()[99]);
  std::cout << "weight " << last << " after 128 steps of 1/256, expected 0.5\n";
  return last == 0.5F ? 0 : 1;
}
