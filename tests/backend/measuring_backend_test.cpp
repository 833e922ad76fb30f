// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/stream_backend.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/failing.hpp>

namespace measuring_backend_test {

using namespace chunkmem;

namespace {

struct without_cause : backend::simulated {
  using simulated::simulated;
  void wait(agent stream, event point) { simulated::wait(stream, point); }
};
struct without_total : backend::simulated {
  using simulated::simulated;
  wait_total waited(wait_cause) const = delete;
};
/// What another has measured is not this one's.
static_assert(measuring_backend<backend::simulated> && measuring_backend<backend::host_arena>);
static_assert(stream_backend<without_cause> && !measuring_backend<without_cause>);
static_assert(stream_backend<without_total> && !measuring_backend<without_total>);
static_assert(!measuring_backend<support::adversarial> && !measuring_backend<support::failing<backend::host_arena>>);

template <class Backend>
void check_order(Backend& mem)
{
  std::byte* const there = mem.allocate(tier::device, 1_KiB);
  mem.fill(there, std::byte{1}, 1_KiB, agent::to_device);
  const event filled = mem.record(agent::to_device);
  const event before = mem.record(agent::to_host);
  mem.wait(agent::to_host, filled, wait_cause::demand_miss);
  mem.fill(there, std::byte{2}, 1_KiB, agent::to_host);
  CHECK(mem.record(agent::to_host).value > before.value);
  mem.wait(agent::host, mem.record(agent::to_host), wait_cause::other);
  if constexpr (Backend::host_addressable) CHECK(there[1'023] == std::byte{2});
  CHECK_THROWS_AS(mem.wait(agent{7}, filled, wait_cause::other), usage_error);
  CHECK(mem.waited(wait_cause::throttle) == wait_total{});
}

}  // namespace

TEST_CASE("a wait that names its cause orders as one that does not", "[backend]")
{
  backend::host_arena arena{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  check_order(arena);
  backend::simulated machine{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  check_order(machine);
}

}  // namespace measuring_backend_test
