// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/compiled_step.hpp>

#include <cstdint>
#include <cstdio>

namespace {

namespace cm = chunkmem;
using namespace cm::literals;

/// Twelve layers of ones on a device that holds three, trained towards zero. @return   the sum of the last layer
template <class Kernel, class Executor>
double train(Kernel kernel, Executor& workers)
{
  cm::backend::host_arena memory{{.device_capacity = 24_KiB, .host_capacity = 512_KiB}};
  cm::compiled_manager m{memory, {.chunk_bytes = 4_KiB}};
  m.use(kernel);
  const auto weights = m.add_stacked<float>(12, {1024}, cm::role::parameter);
  for (std::uint32_t layer = 0; layer < 12; ++layer)
    for (float& x : m.acquire(weights.slice(layer), cm::access::write).span()) x = 1.0F;
  for (int step = 0; step < 3; ++step) {
    const auto iteration = m.iteration();
    for (std::uint32_t layer = 0; layer < 12; ++layer) {
      const auto gradient = m.gradient(m.acquire(weights.slice(layer), cm::access::read));
      for (float& x : gradient.span()) x = 1.0F;
    }
    cm::optimizer::step(m, kernel, {.learning_rate = 0.25F}, workers);
  }
  double sum = 0;
  for (const float x : m.acquire(weights.slice(11), cm::access::read).span()) sum += static_cast<double>(x);
  return m.report().loads > 0 ? sum : 0;
}

}  // namespace

// The manager, the optimizers and their steps come from the library.
int main()
{
  cm::optimizer::thread_pool pool{2};
  const double by_sgd = train(cm::optimizer::sgd{{.momentum = 0.0F}}, cm::on_this_thread);
  const double by_adam = train(cm::optimizer::adam{}, pool);
  std::printf("sums %g and %g, expected 256 and about 256\n", by_sgd, by_adam);
  return by_sgd == 256.0 && by_adam > 255.9 && by_adam < 256.1 ? 0 : 1;
}
