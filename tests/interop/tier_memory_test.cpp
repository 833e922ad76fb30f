// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/interop/tier_memory.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <list>
#include <memory_resource>
#include <new>
#include <numeric>
#include <string>
#include <vector>

namespace tier_memory_test {

namespace cm = chunkmem;
using namespace cm::literals;
using manager = cm::manager<cm::backend::host_arena>;
using memory_of_a_tier = cm::interop::tier_memory<manager>;

namespace {

struct rig {
  cm::backend::host_arena memory{{.device_capacity = 16_KiB, .host_capacity = 32_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  cm::stacked<float> weights = m.add_stacked<float>(4, {1024}, cm::role::parameter);

  void fill()
  {
    for (std::uint32_t index = 0; index < 4; ++index)
      std::ranges::fill(m.acquire(weights.slice(index), cm::access::write).span(), static_cast<float>(index));
  }
  [[nodiscard]] std::uint64_t leased(cm::tier where) const { return m.report().in_use[where].count(); }
};

}  // namespace

TEST_CASE("containers of the standard library live within the budget of a tier", "[interop]")
{
  rig it;
  for (const cm::tier where : {cm::tier::device, cm::tier::host}) {
    memory_of_a_tier memory{it.m, where};
    {
      std::pmr::vector<double> numbers{&memory};
      numbers.resize(300);
      CHECK(it.leased(where) == 2560);  // 2400, up to a multiple of 256
      std::iota(numbers.begin(), numbers.end(), 0.0);
      CHECK(std::accumulate(numbers.begin(), numbers.end(), 0.0) == 300 * 299 / 2);
      numbers.resize(600);
      CHECK(numbers[299] == 299);
      std::pmr::list<std::pmr::string> words{&memory};
      for (int index = 0; index < 4; ++index)
        words.emplace_back("a word that is too long to be kept in the string itself");
      CHECK(words.back().get_allocator().resource() == &memory);
      CHECK(memory.live() == 9);
    }
    CHECK((memory.live() == 0 && it.leased(where) == 0 && memory.unknown_returns() == 0));
  }
}

TEST_CASE("an allocation makes chunks leave, and one that cannot be met is a std::bad_alloc with numbers", "[interop]")
{
  rig it;
  it.fill();
  memory_of_a_tier memory{it.m, cm::tier::device};
  {
    std::pmr::vector<std::uint8_t> large(12 * 1024, &memory);
    std::ranges::fill(large, std::uint8_t{0xff});
    std::pmr::vector<std::uint8_t> more{&memory};
    CHECK_THROWS_AS(more.resize(8 * 1024), std::bad_alloc);
    try {
      more.resize(8 * 1024);
      FAIL("not refused");
    } catch (const cm::out_of_memory& refused) {
      CHECK(refused.shortage().requested == 8 * 1024);
      CHECK(refused.shortage().needed == 20 * 1024);
    }
  }
  for (std::uint32_t index = 0; index < 4; ++index)
    CHECK(it.m.acquire(it.weights.slice(index), cm::access::read).span()[1023] == static_cast<float>(index));
}

TEST_CASE("alignment up to that of tensors is given, more is refused, and an empty allocation has an address",
          "[interop]")
{
  rig it;
  memory_of_a_tier memory{it.m, cm::tier::host};
  void* const some = memory.allocate(10, 256);
  void* const none = memory.allocate(0, 1);
  CHECK(reinterpret_cast<std::uintptr_t>(some) % 256 == 0);
  CHECK((none != nullptr && none != some));
  CHECK_THROWS_AS((void)memory.allocate(10, 512), std::bad_alloc);
  memory.deallocate(some, 10, 256);
  memory.deallocate(none, 0, 1);
  CHECK(memory.live() == 0);
  std::byte foreign{};
  memory.deallocate(&foreign, 1, 1);
  memory.deallocate(some, 10, 256);
  CHECK(memory.unknown_returns() == 2);
  CHECK(memory.is_equal(memory));
  CHECK_FALSE(memory.is_equal(*std::pmr::new_delete_resource()));
}

TEST_CASE("what is never given back ends with the resource", "[interop]")
{
  rig it;
  {
    memory_of_a_tier memory{it.m};
    (void)memory.allocate(1000);
    CHECK(it.leased(cm::tier::host) == 1024);
  }
  CHECK(it.leased(cm::tier::host) == 0);
}

TEST_CASE("a step whose containers allocate alike is followed, and a rehearsal counts them", "[interop]")
{
  rig it;
  memory_of_a_tier memory{it.m, cm::tier::device};
  const auto step = [&] {
    const auto scope = it.m.iteration();
    for (std::uint32_t index = 0; index < 4; ++index) {
      const auto pin = it.m.acquire(it.weights.slice(index), cm::access::read);
      std::pmr::vector<float> workspace(1024, &memory);
      workspace[1023] = 1;
      if (!it.m.rehearsing()) workspace[0] = pin.span()[0];
      CHECK(workspace[1023] == 1);
    }
  };
  const auto needed = it.m.rehearse([&] {
    for (std::uint32_t index = 0; index < 4; ++index)
      it.m.acquire(it.weights.slice(index), cm::access::write).release();
    step();
  });
  CHECK(needed.smallest_device >= 8_KiB);  // a weight and a workspace at once
  CHECK(needed.largest_leases == 4_KiB);
  CHECK(memory.live() == 0);
  it.fill();
  for (int round = 0; round < 4; ++round) step();
  CHECK((it.m.report().divergences == 0 && memory.live() == 0));
}

TEST_CASE("a tier that the calling thread does not reach is refused", "[interop]")
{
  rig it;
  CHECK_THROWS_AS((memory_of_a_tier{it.m, cm::no_tier}), cm::config_error);
}

}  // namespace tier_memory_test
