// SPDX-License-Identifier: Apache-2.0
// Two ranks that are threads train one model. Each rank keeps half of the weights, the gradients and Adam's states
// (ZeRO 3). The program checks that both ranks end with the same weights, and that each loss fell.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>

#include <array>
#include <iostream>
#include <vector>

namespace cm = chunkmem;
using namespace cm::literals;
using memory_type = cm::backend::host_arena;
using ranks_type = cm::collective::local_threads;
constexpr std::uint32_t rank_count = 2, layers = 4, width = 16'384;

/// The losses of one rank and its weights.
struct result {
  double first_loss = 0, last_loss = 0;
  std::vector<float> weights;
};

/// Every rank makes the same calls. `group` is this rank's end of the group.
result train(ranks_type& group)
{
  memory_type memory{{.device_capacity = 1_MiB, .host_capacity = 4_MiB}};  // each rank has its own
  cm::sharded_model<memory_type, ranks_type> m{
      memory, group, {.chunk_bytes = 64_KiB}, {.sum_scale = 1.0F / rank_count}};  // sums of gradients become means
  cm::optimizer::adam adam;
  m.use(adam);
  const auto weights = m.add_stacked<float>(layers, {width}, cm::role::parameter);
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    for (float& w : m.acquire(weights.slice(layer), cm::access::write).span()) w = 0.0F;

  result found;
  for (int step = 0; step < 20; ++step) {
    const auto iteration = m.iteration();
    const float target = cm::index_of(group.rank()) % 2 == 0 ? 0.10F : 0.14F;  // each rank has data of its own
    double loss = 0;
    for (std::uint32_t layer = layers; layer-- > 0;) {
      auto pin = m.acquire(weights.slice(layer), cm::access::read);  // gathers the halves of all ranks
      std::vector<float> error(pin.data(), pin.data() + width);
      for (float& e : error) e -= target, loss += 0.5 * e * e;
      auto g = m.gradient(std::move(pin));
      for (std::size_t i = 0; i < width; ++i) g.data()[i] = error[i];
      m.gradient_done(std::move(g));  // adds the gradients of all ranks; each keeps its half
    }
    m.step(adam, {.learning_rate = 0.01F});  // in place of optimizer::step
    (step == 0 ? found.first_loss : found.last_loss) = loss;
  }
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    const auto pin = m.acquire(weights.slice(layer), cm::access::read);
    found.weights.insert(found.weights.end(), pin.data(), pin.data() + width);
  }
  return found;
}

int main()
{
  std::array<result, rank_count> found;
  cm::sharding::thread_ranks{rank_count}.run([&](auto& place) { found[place.rank()] = train(place.all()); });
  bool good = true;
  for (const result& rank : found) {
    std::cout << "loss " << rank.first_loss << ", then " << rank.last_loss << '\n';
    good = good && rank.last_loss < rank.first_loss && rank.weights == found[0].weights;
  }
  return good ? 0 : 1;
}
