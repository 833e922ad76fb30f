// SPDX-License-Identifier: Apache-2.0
#include <support/throttled_ranks.hpp>

#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <support/catch.hpp>

#include <array>
#include <cstdint>

namespace throttled_ranks_test {

using namespace chunkmem;

static_assert(communicator<support::throttled_ranks<collective::local_threads>, support::throttled_arena>);

TEST_CASE("a port serves by clocks, whichever collective asks first", "[collective]")
{
  using moment = support::network_port::moment;
  const bytes size{10};  // takes 10 ns
  support::network_port port{{0, 1e9}};
  CHECK(port.serve(moment{100}, size) == moment{110});
  CHECK(port.serve(moment{20}, size) == moment{30});   // the port was idle
  CHECK(port.serve(moment{95}, size) == moment{120});  // five are too few
  CHECK(port.serve(moment{25}, bytes{60}) == moment{90});
  CHECK(port.serve(moment{90}, size) == moment{100});
  CHECK(port.serve(moment{0}, bytes{21}) == moment{141});
  CHECK(port.busy() == moment{121});
}

TEST_CASE("a collective begins at the latest clock of all ranks, and another group uses the port meanwhile",
          "[collective]")
{
  constexpr std::uint64_t unit = 10'000'000;  // ns
  const collective::thread_group sums{2};
  const collective::thread_group gathers{2};
  support::clocks_of_ranks clocks_of_sums;
  support::clocks_of_ranks clocks_of_gathers;
  std::array<double, 2> first{};
  std::array<double, 2> all{};
  std::array<std::array<std::uint64_t, 2>, 2> words{};
  collective::run_threads(2, [&](std::uint32_t rank) {
    collective::local_threads sum_end{sums, rank_id{rank}};
    collective::local_threads gather_end{gathers, rank_id{rank}};
    support::throttled_arena memory{
        {.device_capacity = bytes{8192}, .host_capacity = bytes{8192}, .async_compute = true},
        support::links_alone(1e15, 1e15),
        support::pace::agents};
    support::network_port port{{0, 1024e2}};  // a rank's half of 4 KiB takes two units
    support::throttled_ranks<collective::local_threads> sum{sum_end, memory, port, clocks_of_sums};
    support::throttled_ranks<collective::local_threads> gather{gather_end, memory, port, clocks_of_gathers};
    std::byte* const place = memory.allocate(tier::device, bytes{8192});
    const agent one = memory.adopt();
    const agent other = memory.adopt();
    memory.begin_afresh();
    std::uint64_t word[] = {rank};
    sum.exchange(word, words[rank]);  // from here on both have one clock
    const std::uint64_t began = memory.now();
    memory.advance(one, (rank == 0 ? 3 : 1) * unit);
    const collective::shares parts = collective::shares::of(bytes{4096}, 2);
    sum.reduce_scatter(memory, one, place, parts, {dtype::float32, 1.0F}, 0);
    gather.all_gather(memory, other, place + 4096, parts, 0);
    const auto passed = [&](agent stream) {
      memory.wait(agent::host, memory.record(stream));
      return static_cast<double>(memory.now() - began) / unit;
    };
    first[rank] = passed(other);  // the port is free: from 0 to 2
    all[rank] = passed(one);      // both ranks come at 3
  });
  for (const auto& it : words) CHECK(it == std::array<std::uint64_t, 2>{0, 1});
  for (const double it : first) {
    CHECK(it >= 1.9);
    CHECK(it < 2.9);
  }
  for (const double it : all) {
    CHECK(it >= 4.9);
    CHECK(it < 5.9);
  }
}

}  // namespace throttled_ranks_test
