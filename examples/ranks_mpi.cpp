// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes of MPI train one model: mpirun -n 2 ranks_mpi. Each rank keeps its share of the weights,
// gradients and Adam's states (ZeRO 3). The program checks that all ranks end with the same weights, and that each
// loss fell.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/collective/mpi.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <bit>
#include <chrono>
#include <iostream>
#include <vector>

namespace cm = chunkmem;
using namespace cm::literals;
using memory_type = cm::backend::host_arena;
using ranks_type = cm::collective::mpi;
constexpr std::uint32_t layers = 4, width = 16'384;

/// The losses of one rank and the bits of its weights.
struct result {
  double first_loss = 0, last_loss = 0;
  std::vector<float> weights;
};

/// Every rank makes the same calls. `group` is this rank's end of the group.
result train(ranks_type& group)
{
  memory_type memory{{.device_capacity = 1_MiB, .host_capacity = 4_MiB}};  // of this rank alone
  const float scale = 1.0F / static_cast<float>(group.ranks());            // sums of gradients become means
  cm::sharded_model<memory_type, ranks_type> m{
      memory, group, {.chunk_bytes = group.ranks() * 32_KiB}, {.sum_scale = scale}};
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
      auto pin = m.acquire(weights.slice(layer), cm::access::read);  // gathers the shares of all ranks
      std::vector<float> error(pin.data(), pin.data() + width);
      for (float& e : error) e -= target, loss += 0.5 * e * e;
      auto g = m.gradient(std::move(pin));
      for (std::size_t i = 0; i < width; ++i) g.data()[i] = error[i];
      m.gradient_done(std::move(g));  // adds the gradients of all ranks; each keeps its share
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
  cm::collective::mpi_session session;  // starts MPI if it was not started yet
  ranks_type group{session, MPI_COMM_WORLD, {.deadline = std::chrono::minutes{1}}};
  const result found = train(group);
  std::uint64_t sum = 0;  // of the bits of all weights
  for (const float w : found.weights) sum = sum * 31 + std::bit_cast<std::uint32_t>(w);
  std::vector<std::uint64_t> all(group.ranks());
  group.exchange({&sum, 1}, all);
  bool same = true;
  for (const std::uint64_t other : all) same = same && other == sum;
  std::cout << "rank " << cm::index_of(group.rank()) << ": loss " << found.first_loss << ", then " << found.last_loss
            << '\n';
  return same && found.last_loss < found.first_loss ? 0 : 1;
}
