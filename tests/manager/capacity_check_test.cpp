// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/rehearsal.hpp>

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/eviction/policies.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/transfer/policies.hpp>

#include <support/catch.hpp>

namespace capacity_check_test {

namespace cm = chunkmem;
using namespace cm::literals;
using memory = cm::backend::simulated;
using demand = cm::manager<memory, cm::eviction::lru, cm::transfer::no_prefetch>;

namespace {

/// Five tensors of one frame, three of them pinned at once beside a lease of a frame and a half.
cm::memory_requirement measure(cm::bytes device, cm::bytes host)
{
  memory mem{{.device_capacity = device, .host_capacity = host}};
  demand m{mem, {.chunk_bytes = 1_KiB}};
  const auto layers = m.add_stacked<float>(5, {256}, cm::role::parameter);
  return m.rehearse([&] {
    const auto iteration = m.iteration();
    const auto first = m.acquire(layers.slice(0), cm::access::read);
    const auto second = m.acquire(layers.slice(1), cm::access::read_write);
    const auto scratch = m.lease(cm::tier::device, 1536_B);
    for (std::uint32_t index = 2; index < 5; ++index) (void)m.acquire(layers.slice(index), cm::access::read_write);
  });
}

}  // namespace

TEST_CASE("a rehearsal finds the least device, to the frame", "[manager]")
{
  const cm::memory_requirement need = measure(64_KiB, 64_KiB);
  CHECK(need.rehearsed);
  CHECK(need.largest_leases == 1536_B);
  CHECK(need.smallest_device == 5_KiB);  // three pins and two frames that the lease touches
  CHECK(measure(need.smallest_device, 64_KiB).smallest_device == need.smallest_device);
  CHECK_THROWS_AS(measure(need.smallest_device - 1_KiB, 64_KiB), cm::config_error);
}

TEST_CASE("a rehearsal finds the least host beside the device, to the frame", "[manager]")
{
  const cm::memory_requirement need = measure(6_KiB, 64_KiB);
  CHECK(need.smallest_host >= 1_KiB);
  CHECK(need.smallest_host <= 5_KiB);
  (void)measure(6_KiB, need.smallest_host);
  CHECK_THROWS_AS(measure(6_KiB, need.smallest_host - 1_KiB), cm::config_error);
}

TEST_CASE("leases on the host count among what the host must hold", "[manager]")
{
  const auto with_host = [](cm::bytes host) {
    memory mem{{.device_capacity = 4_KiB, .host_capacity = host}};
    demand m{mem, {.chunk_bytes = 1_KiB}};
    const auto layers = m.add_stacked<float>(3, {256}, cm::role::parameter);
    return m.rehearse([&] {
      const auto iteration = m.iteration();
      const auto scratch = m.lease(cm::tier::host, 10_KiB);
      for (std::uint32_t index = 0; index < 3; ++index)
        (void)m.acquire(layers.slice(index), cm::access::read_write, cm::memory_location::host);
    });
  };
  const cm::memory_requirement need = with_host(1_MiB);
  CHECK(need.smallest_host >= 11_KiB);
  CHECK(need.smallest_device <= 3_KiB);
  (void)with_host(need.smallest_host);
  CHECK_THROWS_AS(with_host(need.smallest_host - 1_KiB), cm::config_error);
}

}  // namespace capacity_check_test
