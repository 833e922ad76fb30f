// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/nccl.hpp>
#include <chunkmem/collective/nccl_api.hpp>
#include <support/sanitized.hpp>

#include <collective/nccl_rig.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace nccl_test {

using namespace nccl_rig;

static_assert(communicator<group, device>);
static_assert(nccl_api<support::fake_nccl>);
static_assert(!nccl_api<int>);

TEST_CASE("nccl gives the bytes of a plain loop, with equal and unequal shares, also where each call is in progress",
          "[collective]")
{
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks)
    for (const std::size_t count : {std::size_t{512}, std::size_t{389}}) {
      CAPTURE(ranks, count);
      std::atomic<int> wrong{0};
      const outcome end = run(
          ranks, [&](rank_rig& rig) { wrong += wrong_results(rig, count); },
          std::vector<fake_nccl::plan>(ranks, {.in_progress = 2}));
      CHECK(wrong == 0);
      CHECK(end.world->misuses == 0);
      CHECK(end.world->aborts + end.world->destroys == static_cast<int>(ranks));
      for (const auto& fault : end.faults) CHECK(!fault);
    }
}

TEST_CASE("a scale that is nothing or infinite in fp16 is refused, since NCCL multiplies in the element type",
          "[collective]")
{
  int refused = 0;
  (void)run(1, [&](rank_rig& rig) {
    const auto parts = collective::shares::of(bytes{600}, 1);
    for (const float scale : {1e-9F, 1e6F, std::numeric_limits<float>::quiet_NaN()}) try {
        rig.all.all_reduce(rig.gpu, agent::compute, rig.place, parts, {.type = dtype::float16, .scale = scale}, 1);
      } catch (const usage_error&) {
        ++refused;
      }
  });
  CHECK(refused == 3);
}

TEST_CASE("whatever call of NCCL fails first, both ranks throw, and NCCL is only aborted after it", "[collective]")
{
  const auto work = [](rank_rig& rig) {
    const auto parts = collective::shares::of(bytes{600}, 2);
    rig.all.agreed(true);
    rig.all.all_gather(rig.gpu, agent::compute, rig.place, parts, 1);
    rig.all.all_reduce(rig.gpu, agent::compute, rig.place, parts, {.scale = 3}, 2);
    rig.all.barrier(rig.gpu, agent::compute, 3);
  };
  for (const bool is_async : {false, true})
    for (int number = 1; number <= 6; ++number)
      for (int index = 0; index < 12; ++index) {
        if (support::sanitized && (index + number) % 5 != 0) continue;  // each call, with one or two of the numbers
        CAPTURE(is_async, number, index);
        const outcome end = run(2, work, {{.fail_at = index, .number = number, .is_async = is_async}});
        REQUIRE(end.faults[0]);
        CHECK(end.faults[0]->number == number);
        CHECK(end.faults[1]);
        CHECK(end.world->after_failure == 0);
        CHECK(end.world->misuses == 0);
        CHECK(end.world->aborts + end.world->destroys <= 2);
      }
}

TEST_CASE("calls that differ throw on every rank before a byte changes", "[collective]")
{
  std::atomic<int> changed{0};
  const outcome end = run(3, [&](rank_rig& rig) {
    rig.gpu.fill(rig.place, std::byte{7}, bytes{64}, agent::compute);
    rig.all.finish(rig.gpu, agent::compute);
    const auto size = bytes{index_of(rig.all.rank()) == 1 ? 32U : 64U};
    try {
      rig.all.broadcast(rig.gpu, agent::compute, rig.place, size, rank_id{0}, 1);
    } catch (...) {
      rig.gpu.wait(agent::host, rig.gpu.record(agent::compute));
      for (int i = 0; i < 64; ++i) changed += rig.place[i] == std::byte{7} ? 0 : 1;
      throw;
    }
  });
  for (const auto& fault : end.faults) CHECK((fault && fault->failure != comm_failure::deadline));
  CHECK(changed == 0);
}

TEST_CASE("a rank that leaves before an operation is an error on every other one, and streams drain", "[collective]")
{
  for (int left_at = 0; left_at < 4; ++left_at) {
    CAPTURE(left_at);
    const outcome end = run(3, [&](rank_rig& rig) {
      rig.all.agreed(true);
      const auto parts = collective::shares::of(bytes{600}, 3);
      for (int step = 0; step < 4; ++step) {
        if (step == left_at && index_of(rig.all.rank()) == 2) return;
        if (step == 0) rig.all.all_gather(rig.gpu, agent::compute, rig.place, parts, 1);
        if (step == 1) rig.all.reduce_scatter(rig.gpu, agent::compute, rig.place, parts, {}, 1);
        if (step == 2) rig.all.all_reduce(rig.gpu, agent::compute, rig.place, parts, {}, 1);
        if (step == 3) rig.all.broadcast(rig.gpu, agent::compute, rig.place, bytes{64}, rank_id{0}, 1);
        rig.all.finish(rig.gpu, agent::compute);
      }
    });
    CHECK(end.faults[0]);
    CHECK(end.faults[1]);
    CHECK(end.world->misuses == 0);
  }
}

TEST_CASE("a planned operation that differs ends by the deadline", "[collective]")
{
  const outcome end = run(
      2,
      [](rank_rig& rig) {
        rig.all.agreed(true);
        rig.all.broadcast(rig.gpu, agent::compute, rig.place, bytes{64 + index_of(rig.all.rank())}, rank_id{0}, 1);
        rig.all.finish(rig.gpu, agent::compute);
      },
      {}, 50'000'000);
  for (const auto& fault : end.faults) REQUIRE(fault);
  CHECK((end.faults[0]->failure == comm_failure::deadline || end.faults[1]->failure == comm_failure::deadline));
  CHECK(end.world->aborts == 2);
}

/// A device that cannot be asked for one event.
struct without_query : device {
  using device::device;
  bool is_reached(event) = delete;
};

/// Rank 0 waits for a gather that rank 1 does not join. @return   the error of rank 0
template <class Device>
std::optional<comm_failure> wait_alone()
{
  board meeting{2};
  const auto world = std::make_shared<support::fake_nccl_world>(2);
  std::latch through{1};
  std::optional<comm_failure> told;
  const auto work = [&](std::uint32_t rank) {
    const support::fake_cuda cuda{support::fake_cuda_options{.seed = rank + 1}};
    Device gpu{{.device_capacity = bytes{1 << 20}, .host_capacity = bytes{1 << 20}}, cuda};
    std::byte* const place = gpu.allocate(tier::device, bytes{4096});
    control mine{meeting, rank};
    group all{mine, {.deadline = 100'000'000}, fake_nccl{world, cuda, static_cast<int>(rank), {}}};
    if (rank == 1) return through.wait();
    all.agreed(true);
    gpu.fill(place, std::byte{1}, bytes{4096}, agent::to_device);
    const event early = gpu.record(agent::to_device);
    all.await(gpu, early);
    all.await(gpu, gpu.record(agent::host));
    gpu.wait(agent::host, early);
    all.all_gather(gpu, agent::compute, place, collective::shares::of(bytes{600}, 2), 1);
    try {
      all.await(gpu, gpu.record(agent::compute));
    } catch (const comm_error& error) {
      told = error.fault().failure;
    }
    gpu.wait(agent::host, gpu.record(agent::compute));  // it is over
    through.count_down();
  };
  std::thread other{work, 1U};
  work(0);
  other.join();
  return told;
}

TEST_CASE("the calling thread waits for an event by the deadline", "[collective]")
{
  CHECK(wait_alone<device>() == comm_failure::deadline);
  CHECK(wait_alone<without_query>() == comm_failure::deadline);
}

TEST_CASE("memory is told to NCCL once and forgotten once", "[collective]")
{
  const outcome end = run(2, [](rank_rig& rig) {
    const collective::nccl_registration told{rig.all, rig.place, bytes{4096}};
    rig.all.barrier(rig.gpu, agent::compute, 1);
  });
  for (const auto& it : end.world->members) CHECK(it.enrolled == 0);
  CHECK(end.world->misuses == 0);
}

TEST_CASE("revoke and check at once abort exactly once", "[collective]")
{
  for (int round = 0; round < 20; ++round) {
    const outcome end = run(1, [](rank_rig& rig) {
      std::thread other{[&] { rig.all.revoke(); }};
      try {
        for (;;) rig.all.check();
      } catch (const comm_error& error) {
        CHECK(error.fault().failure == comm_failure::revoked);
      }
      other.join();
    });
    CHECK(end.world->aborts == 1);
    CHECK(end.world->destroys == 0);
    CHECK(end.world->misuses == 0);
  }
}

}  // namespace nccl_test
