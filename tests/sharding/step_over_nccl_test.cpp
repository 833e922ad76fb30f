// SPDX-License-Identifier: Apache-2.0
// Steps of ranks with a fake GPU each over a fake NCCL: their weights, and the results of a step where a rank dies at
// any of its collectives.
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/nccl.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>
#include <support/counting_ranks.hpp>
#include <support/fake_device.hpp>
#include <support/fake_nccl.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace step_over_nccl_test {

using namespace chunkmem;
using group_type = collective::nccl<support::fake_nccl, collective::local_threads>;
using counted_type = support::counting<group_type>;

constexpr std::uint32_t ranks = 3;
constexpr std::uint64_t deadline = 500'000'000;  // nanoseconds
constexpr bytes frame{ranks * 16384};
constexpr std::uint64_t elements = frame.count() / sizeof(float);

/// Three weights, whose gradients are made on the GPU: as floats 0x40404040 (3.0), the same on every rank.
struct trainer {
  sharded_model<support::fake_device, counted_type> m;
  optimizer::sgd kernel{{.momentum = 0}};
  std::vector<tensor<float>> weights;

  trainer(support::fake_device& gpu, counted_type& all, const sharding::zero& divided)
      : m{gpu, all, {.chunk_bytes = frame}, {.divided = divided, .sum_scale = 1.0F / ranks}}
  {
    m.use(kernel);
    for (int index = 0; index < 3; ++index) weights.push_back(m.template add<float>({elements}, role::parameter));
    for (const auto it : weights) {
      auto pin = m.acquire(it, access::write);
      for (float& value : pin.span()) value = all.rank() == rank_id{1} ? 1 : 2;
      m.broadcast(std::move(pin), rank_id{1});
    }
  }
  void step()
  {
    const auto scope = m.iteration();
    for (const auto it : weights) {
      const auto pin = m.acquire(it, access::read, agent::compute);
    }
    for (std::size_t index = weights.size(); index-- > 0;) {
      auto gradient = m.gradient(m.acquire(weights[index], access::read, agent::compute));
      m.backend().fill(reinterpret_cast<std::byte*>(std::as_const(gradient).data()), std::byte{0x40}, frame,
                       agent::compute);
      m.gradient_done(std::move(gradient));
    }
    (void)m.step(kernel, {.learning_rate = 0.125F, .clip = {.norm = 1e9F}});
  }
  /// The first element of this rank's shard of the first weight.
  float first_of_share()
  {
    const auto pin =
        m.shares().acquire(tensor<float>{m.share_of(weights[0]).first->share}, access::read, memory_location::host);
    return pin.span()[0];
  }
};

/// The work of each rank, with its communicator over one world. @param work   `work(rank, gpu, all)`
void on_gpus(call_ref<void(std::uint32_t rank, support::fake_device& gpu, counted_type& all)> work)
{
  const collective::thread_group threads{ranks, {.deadline = deadline}};
  const auto world = std::make_shared<support::fake_nccl_world>(static_cast<int>(ranks));
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    support::fake_cuda runtime{support::fake_cuda_options{.when = support::fake_schedule::earliest}};
    support::fake_device gpu{{.device_capacity = frame * 14, .host_capacity = frame * 30}, runtime};
    collective::local_threads control{threads, rank_id{rank}};
    group_type group{control, collective::nccl_options{.deadline = deadline},
                     support::fake_nccl{world, runtime, static_cast<int>(rank), {}}};
    counted_type all{group};
    work(rank, gpu, all);
  });
}

constexpr sharding::zero stages[] = {sharding::zero_2, sharding::zero_3};

TEST_CASE("ranks with a GPU each move their weights by the mean of their gradients", "[sharding]")
{
  for (const sharding::zero& divided : stages) {
    std::vector<float> found(ranks);
    std::vector<std::vector<int>> priorities(ranks);  // of the streams on which they gather and add
    on_gpus([&](std::uint32_t rank, support::fake_device& gpu, counted_type& all) {
      trainer it{gpu, all, divided};
      for (int step = 0; step < 3; ++step) it.step();
      found[rank] = it.first_of_share();
      for (std::size_t its = built_in_agents; its < gpu.agents(); ++its)
        priorities[rank].push_back(gpu.runtime().priority_of(gpu.stream(static_cast<agent>(its))));
    });
    const float gradient = 3.00392198562622F;  // of the bytes 0x40404040
    for (const float it : found) CHECK(it == Catch::Approx(1 - 3 * 0.125F * gradient));
    for (const auto& its : priorities) CHECK(its == std::vector{-5, -5});
  }
}

TEST_CASE("ranks with a GPU each are told which value or setting differs, before any update", "[sharding]")
{
  std::vector<std::string> of_values(ranks), of_settings(ranks);
  std::vector<float> found(ranks);
  on_gpus([&](std::uint32_t rank, support::fake_device& gpu, counted_type& all) {
    trainer it{gpu, all, sharding::zero_3};
    const auto refusal = [&] { return support::refusal<usage_error>([&] { it.step(); }); };
    const auto fill = [&](float own) {
      for (float& value : it.m.acquire(it.weights[1], access::write).span()) value = own;
    };
    if (rank == 2) fill(3);
    of_values[rank] = refusal();
    if (rank == 2) fill(1);
    it.kernel.group(group_id{0}, {.momentum = 0, .weight_decay = rank == 2 ? 0.5F : 0.0F});
    of_settings[rank] = refusal();
    found[rank] = it.first_of_share();
  });
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    CHECK_THAT(of_values[rank],
               Catch::Matchers::StartsWith("chunkmem: ranks have different first values: weight tensor.1"));
    CHECK_THAT(of_values[rank], Catch::Matchers::ContainsSubstring(" on rank 2, and "));
    CHECK_THAT(of_settings[rank],
               Catch::Matchers::StartsWith("chunkmem: ranks take different steps: weight_decay of "
                                           "group 0 = 0.5 on rank 2, and nothing like it on rank 0"));
    CHECK(found[rank] == 1.0F);
  }
}

}  // namespace step_over_nccl_test
