// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/on_caller.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <conformance/stream_backend.hpp>
#include <support/catch.hpp>
#include <support/poisoned_memory.hpp>

#include <cstring>
#include <thread>
#include <type_traits>

namespace on_caller_test {

using namespace chunkmem;
using backend::host_arena;
using backend::host_arena_options;
using backend::on_caller;

namespace {

/// Memory of the caller without agents, whose copies and fills fail on request.
class plain_memory {
 public:
  static constexpr bool host_addressable = true;

  plain_memory(bytes device, bytes host) : memory_{device, host} {}

  [[nodiscard]] bytes capacity(tier where) const { return memory_.capacity(where); }
  [[nodiscard]] std::byte* allocate(tier where, bytes size) { return memory_.allocate(where, size); }
  void release(tier where, std::byte* place) noexcept
  {
    if (place != nullptr) memory_.release(where, place);
  }
  void copy(std::byte* to, const std::byte* from, bytes size)
  {
    fail_if_told();
    if (size != bytes{}) std::memmove(to, from, size.count());
  }
  void fill(std::byte* to, std::byte value, bytes size)
  {
    fail_if_told();
    if (size != bytes{}) std::memset(to, std::to_integer<int>(value), size.count());
  }

  bool fails = false;

 private:
  void fail_if_told() const
  {
    if (fails) throw device_error{"told to fail (do not tell it)"};
  }

  support::poisoned_memory memory_;
};

static_assert(memory_backend<plain_memory> && !stream_backend<plain_memory>);
static_assert(stream_backend<on_caller<plain_memory>>);
static_assert(stream_backend<on_caller<host_arena>>);
static_assert(on_caller<plain_memory>::host_addressable && has_bytes<on_caller<plain_memory>>());
static_assert(!on_caller<backend::simulated>::host_addressable && !has_bytes<on_caller<backend::simulated>>());
static_assert(!std::is_copy_constructible_v<on_caller<plain_memory>>);
static_assert(!std::is_move_constructible_v<on_caller<plain_memory>>);
static_assert(std::is_constructible_v<on_caller<plain_memory>, bytes, bytes>);
static_assert(!std::is_constructible_v<on_caller<plain_memory>, bytes>);

constexpr agent unknown = static_cast<agent>(built_in_agents);

}  // namespace

TEST_CASE("on_caller makes a stream backend of memory that has no streams", "[backend]")
{
  conformance::stream_backend_laws<on_caller<plain_memory>>([](bytes device, bytes host) {
    return on_caller<plain_memory>{device, host};
  });
}

TEST_CASE("so it does of memory that has agents of its own, and of memory without bytes", "[backend]")
{
  conformance::stream_backend_laws<on_caller<host_arena>>([](bytes device, bytes host) {
    return on_caller<host_arena>{
        host_arena_options{.device_capacity = device, .host_capacity = host, .async_compute = true}};
  });
  conformance::stream_backend_laws<on_caller<backend::simulated>>([](bytes device, bytes host) {
    return on_caller<backend::simulated>{backend::simulated_options{.device_capacity = device, .host_capacity = host}};
  });
}

TEST_CASE("work of on_caller is done on the calling thread when the call returns", "[backend]")
{
  on_caller<plain_memory> mem{64_KiB, 64_KiB};
  std::byte* const here = mem.allocate(tier::host, 1_KiB);
  std::byte* const there = mem.allocate(tier::device, 1_KiB);
  const auto caller = std::this_thread::get_id();
  const agent fifth = mem.adopt();
  for (const agent stream : {agent::host, agent::compute, agent::to_device, agent::to_host, fifth}) {
    const auto value = std::byte(index_of(stream) + 1);
    mem.fill(here, value, 1_KiB, stream);
    CHECK(here[1'023] == value);
    mem.copy(there, here, 1_KiB, stream);
    CHECK(there[1'023] == value);
    bool ran_here = false;
    mem.launch(stream, [&] { ran_here = std::this_thread::get_id() == caller; });
    CHECK(ran_here);
    CHECK(mem.record(stream).value == 3);
  }
  CHECK(mem.throttled() == 0);
  const std::uint64_t before = mem.now();
  CHECK(mem.now() >= before);
}

TEST_CASE("events of on_caller count what each agent was given", "[backend]")
{
  on_caller<plain_memory> mem{64_KiB, 64_KiB};
  std::byte* const place = mem.allocate(tier::device, 1_KiB);
  mem.fill(place, std::byte{}, 1_KiB);
  mem.copy(place, place + 512, 512_B);
  mem.launch(agent::compute, [] {});
  CHECK(mem.record(agent::host).value == 2);
  CHECK(mem.record(agent::compute).value == 1);
  CHECK(mem.record(agent::to_device).value == 0);
  mem.wait(agent::to_device, mem.record(agent::compute));
  CHECK(mem.record(agent::to_device).value == 0);
}

TEST_CASE("an operation that the memory refuses does not count", "[backend]")
{
  on_caller<plain_memory> mem{64_KiB, 64_KiB};
  std::byte* const place = mem.allocate(tier::device, 1_KiB);
  mem.fill(place, std::byte{1}, 1_KiB, agent::to_device);
  mem.memory().fails = true;
  CHECK_THROWS_AS(mem.fill(place, std::byte{2}, 1_KiB, agent::to_device), device_error);
  CHECK_THROWS_AS(mem.copy(place, place + 512, 512_B, agent::to_device), device_error);
  CHECK(mem.record(agent::to_device).value == 1);
  mem.memory().fails = false;
  mem.copy(place, place + 512, 512_B, agent::to_device);
  CHECK(mem.record(agent::to_device).value == 2);
  CHECK(place[0] == std::byte{1});
}

TEST_CASE("on_caller without bytes runs no kernel", "[backend]")
{
  on_caller<backend::simulated> mem{backend::simulated_options{.device_capacity = 1_KiB, .host_capacity = 1_KiB}};
  bool ran = false;
  mem.launch(agent::compute, [&ran] { ran = true; });
  CHECK_FALSE(ran);
  CHECK(mem.record(agent::compute).value == 1);
}

TEST_CASE("on_caller refuses unknown agents, null addresses and unrecorded events", "[backend]")
{
  on_caller<plain_memory> mem{64_KiB, 64_KiB};
  std::byte* const place = mem.allocate(tier::host, 64_B);
  bool ran = false;
  CHECK_THROWS_AS(mem.copy(place, place, 64_B, unknown), usage_error);
  CHECK_THROWS_AS(mem.fill(place, std::byte{}, 64_B, unknown), usage_error);
  CHECK_THROWS_AS(mem.launch(unknown, [&ran] { ran = true; }), usage_error);
  CHECK_THROWS_AS(mem.record(unknown), usage_error);
  CHECK_THROWS_AS(mem.wait(unknown, {}), usage_error);
  CHECK_THROWS_AS(mem.wait(agent::host, {.value = 0, .source = unknown}), usage_error);
  CHECK_THROWS_AS(mem.wait(agent::host, {.value = 1, .source = agent::to_host}), usage_error);
  CHECK_THROWS_AS(mem.copy(nullptr, place, 64_B, agent::to_host), usage_error);
  CHECK_THROWS_AS(mem.copy(place, nullptr, 64_B), usage_error);
  CHECK_THROWS_AS(mem.fill(nullptr, std::byte{}, 64_B), usage_error);
  CHECK_FALSE(ran);
  CHECK(mem.record(agent::to_host).value == 0);
  CHECK(mem.record(agent::host).value == 0);
}

}  // namespace on_caller_test
