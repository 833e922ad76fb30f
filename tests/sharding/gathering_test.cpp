// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/gathering.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>

#include <support/catch.hpp>
#include <support/oracles/listening_backend.hpp>
#include <support/rank_threads.hpp>

#include <cstdint>
#include <vector>

namespace gathering_test {

using namespace chunkmem;
using mover_type = sharding::gathering<collective::local_threads>;
static_assert(gathering_mover<mover_type, backend::host_arena>);

TEST_CASE("a gathering mover copies as the default does, and says who works for the ranks", "[sharding]")
{
  support::listening_backend backend;
  std::byte device[4]{};
  std::byte host[4]{};
  const collective::thread_group group{1, {}};
  collective::local_threads ranks{group, rank_id{0}};
  mover_type mover{ranks, static_cast<agent>(4)};
  mover.bring(backend, device, host, bytes{4}, agent::to_device);
  mover.take(backend, host, device, bytes{3}, agent::to_host);
  REQUIRE(backend.heard.size() == 2);
  CHECK(backend.heard[0] == support::copied(agent::to_device, device, host, 4));
  CHECK(backend.heard[1] == support::copied(agent::to_host, host, device, 3));
  CHECK(mover.worker() == static_cast<agent>(4));
}

TEST_CASE("a gather makes a chunk of equal shares whole, a sum leaves each rank its share", "[sharding]")
{
  constexpr std::uint32_t ranks = 3;
  constexpr std::size_t share = 128;
  std::vector<int> right(ranks, 0);
  const collective::thread_group group{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    backend::host_arena memory{{.device_capacity = bytes{4096}, .host_capacity = bytes{4096}}};
    collective::local_threads here{group, rank_id{rank}};
    mover_type mover{here, memory.adopt()};
    std::vector<float> whole(ranks * share, -1.0F);
    for (std::size_t index = 0; index < share; ++index)
      whole[rank * share + index] = static_cast<float>(rank * 1000 + index);
    const bytes size{whole.size() * sizeof(float)};
    mover.gather(memory, reinterpret_cast<std::byte*>(whole.data()), size, 5);
    memory.wait(agent::host, memory.record(mover.worker()));
    bool fine = true;
    for (std::size_t index = 0; index < whole.size(); ++index)
      fine = fine && whole[index] == static_cast<float>(index / share * 1000 + index % share);
    mover.sum(memory, reinterpret_cast<std::byte*>(whole.data()), size, 6, {dtype::float32, 0.5F});
    memory.wait(agent::host, memory.record(mover.worker()));
    for (std::size_t index = rank * share; index < (rank + 1) * share; ++index)
      fine = fine && whole[index] == static_cast<float>(index / share * 1000 + index % share) * 1.5F;
    right[rank] = fine ? 1 : 0;
  });
  CHECK(right == std::vector<int>(ranks, 1));
}

TEST_CASE("ranks that gather or sum chunks of two names are told so, both of them", "[sharding]")
{
  for (const bool sums : {false, true}) {
    std::vector<int> refused(2, 0);
    const collective::thread_group group{2, {}};
    support::on_ranks(2, [&](std::uint32_t rank) {
      backend::host_arena memory{{.device_capacity = bytes{4096}, .host_capacity = bytes{4096}}};
      collective::local_threads here{group, rank_id{rank}};
      mover_type mover{here, memory.adopt()};
      std::vector<float> whole(128);
      const bytes size{whole.size() * sizeof(float)};
      auto* const begin = reinterpret_cast<std::byte*>(whole.data());
      try {
        sums ? mover.sum(memory, begin, size, 5 + rank, {dtype::float32, 1})
             : mover.gather(memory, begin, size, 5 + rank);
        memory.wait(agent::host, memory.record(mover.worker()));
        here.check();
      } catch (const error&) {
        refused[rank] = 1;
      }
    });
    CHECK(refused == std::vector<int>{1, 1});
  }
}

}  // namespace gathering_test
