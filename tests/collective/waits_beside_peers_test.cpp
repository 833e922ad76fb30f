// SPDX-License-Identifier: Apache-2.0
// Waits of the host for a device on which groups of ranks have work: the events that end them, and those that do not.
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/nccl.hpp>

#include <support/catch.hpp>
#include <support/fake_device.hpp>
#include <support/fake_nccl.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

namespace waits_beside_peers_test {

using namespace chunkmem;
using support::fake_device;
using support::fake_nccl;
using nccl_type = collective::nccl<fake_nccl, collective::local_threads>;
using std::chrono::milliseconds;

namespace {

constexpr std::uint64_t soon = 100'000'000;        // nanoseconds: the deadline of a group that loses a rank
constexpr std::uint64_t late = 3'600'000'000'000;  // of one that does not: a test that waits for it hangs

/// The identity that `fake_nccl` makes: with it a rank makes its communicator although the others never come.
const std::vector<std::byte> known_identity(fake_nccl::id_size, std::byte{0x5a});

/// Rank 0 of a group. With two ranks the other one never comes.
struct group {
  group(std::uint32_t ranks, std::uint64_t deadline, const support::fake_cuda& runtime, fake_nccl::plan plan = {})
      : threads{ranks, {.deadline = late}}, world{std::make_shared<support::fake_nccl_world>(static_cast<int>(ranks))}
  {
    nccl.emplace(control, known_identity, collective::nccl_options{.deadline = deadline},
                 fake_nccl{world, runtime, 0, plan});
    nccl->agreed(true);
  }
  /// An operation, on the stream of an agent.
  void gather(fake_device& gpu, std::byte* place, agent on = agent::compute)
  {
    nccl->all_gather(gpu, on, place, collective::shares::of(bytes{512}, control.ranks()), 1);
  }

  collective::thread_group threads;
  std::shared_ptr<support::fake_nccl_world> world;
  collective::local_threads control{threads, rank_id{0}};
  std::optional<nccl_type> nccl;
};

struct device {
  /// Work of this rank alone, longer than the deadline of a group.
  void work_for(milliseconds time)
  {
    gpu->launch(agent::compute,
                [&](auto on) { runtime.launch_kernel(on, [=] { std::this_thread::sleep_for(time); }); });
  }
  void wait() { gpu->wait(agent::host, gpu->record(agent::compute)); }

  support::fake_cuda runtime{support::fake_cuda_options{.when = support::fake_schedule::earliest}};
  std::optional<fake_device> gpu{
      std::in_place, support::fake_device_options{.device_capacity = bytes{1 << 16}, .host_capacity = bytes{1 << 16}},
      runtime};
  std::byte* place = gpu->allocate(tier::device, bytes{4096});
};

}  // namespace

TEST_CASE("work of the rank's own that is longer than the deadline ends no group and loses no device", "[collective]")
{
  device it;
  group whole{1, 10 * soon, it.runtime};  // a machine may stand still for a moment
  whole.gather(*it.gpu, it.place);
  whole.nccl->finish(*it.gpu, agent::compute);
  it.work_for(milliseconds{1'100});
  it.wait();
  whole.gather(*it.gpu, it.place);
  whole.nccl->finish(*it.gpu, agent::compute);
  whole.nccl->revoke();
  it.work_for(milliseconds{1'500});  // longer than the deadline and the time to drain
  it.wait();
  CHECK_FALSE(it.gpu->is_lost());
}

TEST_CASE("a wait that a lost rank held up throws, and the wait behind it is for the rank's own work", "[collective]")
{
  device it;
  group lone{2, soon, it.runtime};
  lone.gather(*it.gpu, it.place);
  try {
    it.wait();
    FAIL("the bytes of a lost rank were given");
  } catch (const comm_error& error) {
    CHECK(error.fault().failure == comm_failure::deadline);
  }
  CHECK_THROWS_AS(lone.nccl->check(), comm_error);
  it.wait();
  CHECK_FALSE(it.gpu->is_lost());
}

TEST_CASE("a group that has no work on a device does not end those that have", "[collective]")
{
  device it;
  group whole{1, late, it.runtime};
  group failed{2, late, it.runtime};
  whole.gather(*it.gpu, it.place);
  failed.nccl->revoke();
  CHECK_THROWS_AS(failed.gather(*it.gpu, it.place), comm_error);
  it.work_for(milliseconds{5});
  it.wait();
  whole.nccl->check();
}

TEST_CASE("a call of the runtime that fails in passing makes no wait beside a lost rank longer", "[collective]")
{
  const auto [call, waits] = GENERATE(table<std::string_view, bool>(
      {{"query_event", false}, {"record_event", false}, {"query_event", true}, {"record_event", true}}));
  INFO(call << ", waits " << waits);
  device it;
  group lone{2, soon, it.runtime};
  lone.gather(*it.gpu, it.place);
  it.runtime.fail_call_of(call, it.runtime.calls(call) + 1, 2);
  if (waits) CHECK_THROWS_AS((void)it.wait(), comm_error);
  it.gpu.reset();  // hangs otherwise
}

TEST_CASE("the deadline of an operation counts, not that of a group which ended well", "[collective]")
{
  device it;
  {
    group before{1, late, it.runtime};
    before.gather(*it.gpu, it.place);
  }
  group lone{2, soon, it.runtime};
  lone.gather(*it.gpu, it.place);
  it.gpu->release(tier::device, it.place);
  CHECK_THROWS_AS(lone.nccl->check(), comm_error);
}

TEST_CASE("no deadline is too long", "[collective]")
{
  for (const std::uint64_t deadline : {std::uint64_t{INT64_MAX}, std::uint64_t{UINT64_MAX}}) {
    device it;
    group whole{1, deadline, it.runtime};
    whole.gather(*it.gpu, it.place);
    it.work_for(milliseconds{5});
    it.wait();
    it.gpu->release(tier::device, it.place);
    whole.nccl.reset();
    CHECK(whole.world->aborts == 0);
    CHECK(whole.world->destroys == 1);
  }
}

TEST_CASE("one communicator takes turns on two devices, and neither waits for its lost rank", "[collective]")
{
  device first;
  device second;
  group whole{1, late, first.runtime};
  for (device* const it : {&first, &second, &first}) {
    whole.gather(*it->gpu, it->place);
    it->wait();
  }
  group lone{2, soon, first.runtime};
  for (device* const it : {&first, &second}) lone.gather(*it->gpu, it->place);
  CHECK_THROWS_AS(first.wait(), comm_error);
  CHECK_THROWS_AS(lone.nccl->check(), comm_error);
  CHECK_THROWS_AS(whole.nccl->check(), comm_error);  // it has work on the device of the failed one
  second.gpu.reset();
}

TEST_CASE("captured operations of a lost rank hold no wait up", "[collective]")
{
  device it;
  group lone{2, soon, it.runtime};
  it.gpu->begin_capture();
  lone.gather(*it.gpu, it.place);
  auto graph = it.gpu->end_capture();
  it.gpu->launch(graph);
  CHECK_THROWS_AS(it.wait(), comm_error);
}

TEST_CASE("a capture beside failed groups says what to do, and goes on", "[collective]")
{
  device it;
  {
    group lone{2, soon, it.runtime};
    lone.gather(*it.gpu, it.place);
    CHECK_THROWS_AS(it.wait(), comm_error);
  }
  group fresh{1, late, it.runtime};
  it.gpu->begin_capture();
  CHECK_THROWS_AS(fresh.gather(*it.gpu, it.place), usage_error);
  auto graph = it.gpu->end_capture();
  it.gpu->launch(graph);
  fresh.gather(*it.gpu, it.place);
  it.wait();
}

TEST_CASE("an end of a communicator is on the device where it was made", "[collective]")
{
  const support::fake_cuda runtime{support::fake_cuda_options{.devices = 2}};
  CHECK(runtime.use_device(1) == 0);
  std::optional<group> it{std::in_place, 1, late, runtime};
  CHECK(runtime.use_device(0) == 0);
  it->nccl.reset();
  CHECK(it->world->ended_on == 1);
}

TEST_CASE("a group may fail on any thread while it joins a device", "[collective]")
{
  const support::fake_cuda runtime{};
  for (int tries = 0; tries < 200; ++tries) {
    group it{1, late, runtime};
    auto first = std::make_shared<backend::peer_groups>();
    const auto second = std::make_shared<backend::peer_groups>();
    it.nccl->session().join(first);
    first->close();
    first.reset();
    std::atomic<bool> may_go{false};
    std::thread other{[&] {
      may_go = true;
      it.nccl->revoke();
    }};
    while (!may_go) std::this_thread::yield();
    try {
      it.nccl->session().join(second);
    } catch (const comm_error&) {  // it was first
    }
    other.join();
    CHECK_THROWS_AS(it.nccl->check(), comm_error);
  }
}

}  // namespace waits_beside_peers_test
