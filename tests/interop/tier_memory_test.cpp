// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/interop/tier_memory.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/manager.hpp>

#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory_resource>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace lease_table_test {

namespace cm = chunkmem;
using namespace cm::literals;
using manager = cm::manager<cm::backend::host_arena>;

TEST_CASE("a lease ends by its address and size, in any order", "[interop]")
{
  cm::backend::host_arena memory{{.device_capacity = 16_KiB, .host_capacity = 16_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  cm::interop::lease_table table{m};
  std::byte* const first = table.take(cm::tier::device, 1_KiB, cm::agent::host);
  std::byte* const second = table.take(cm::tier::device, 512_B, cm::agent::compute);
  std::byte* const third = table.take(cm::tier::host, 1_KiB, cm::agent::host);
  CHECK((first != second && table.live() == 3));
  CHECK(m.report().in_use[cm::tier::device] == 1536_B);
  CHECK_FALSE(table.give(first, 512_B));
  CHECK_FALSE(table.give(first + 1, 1_KiB));
  CHECK(table.give(first, 1_KiB));
  CHECK_FALSE(table.give(first, 1_KiB));
  cm::agent told = cm::agent::to_host;
  CHECK(table.give(second, 512_B, [&](cm::agent stream) { told = stream; }));
  CHECK(told == cm::agent::compute);
  CHECK(m.report().in_use[cm::tier::device] == 0_B);
  CHECK(m.report().in_use[cm::tier::host] == 1_KiB);
  CHECK(table.give(third, 1_KiB));
  CHECK(table.live() == 0);
}

TEST_CASE("a lease that is refused leaves no trace, and a table that goes ends what is left", "[interop]")
{
  cm::backend::host_arena memory{{.device_capacity = 16_KiB, .host_capacity = 16_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  {
    cm::interop::lease_table table{m};
    CHECK_THROWS_AS((void)table.take(cm::tier::device, 17_KiB, cm::agent::host), cm::out_of_memory);
    CHECK(table.live() == 0);
    (void)table.take(cm::tier::device, 16_KiB, cm::agent::host);
  }
  CHECK(m.report().in_use[cm::tier::device] == 0_B);
}

}  // namespace lease_table_test

namespace stream_leases_test {

namespace cm = chunkmem;

namespace {

/// A manager and its backend in one, which record their calls.
struct notes {
  struct lease_type {
    std::byte* at = nullptr;
    std::string* log = nullptr;
    lease_type() = default;
    lease_type(std::byte* address, std::string* to) : at{address}, log{to} {}
    lease_type(lease_type&& other) noexcept : at{other.at}, log{std::exchange(other.log, nullptr)} {}
    lease_type& operator=(lease_type&& other) noexcept
    {
      std::swap(at, other.at);
      std::swap(log, other.log);
      return *this;
    }
    ~lease_type()
    {
      if (log != nullptr) *log += "end ";
    }
    [[nodiscard]] bool is_live() const { return log != nullptr; }
    [[nodiscard]] std::byte* data() const { return at; }
  };

  lease_type lease(cm::tier where, cm::bytes size, cm::agent stream)
  {
    text += "lease " + std::string{name_of(where)} + " " + std::to_string(size.count()) + " for " +
            std::to_string(static_cast<int>(stream)) + " ";
    return {&memory[used++], &text};
  }
  notes& backend() { return *this; }
  cm::agent adopt(int stream)
  {
    if (stream == 0) throw cm::usage_error{"a default stream"};
    text += "adopt " + std::to_string(stream) + " ";
    return static_cast<cm::agent>(++adopted);
  }
  cm::event record(cm::agent stream)
  {
    text += "record " + std::to_string(static_cast<int>(stream)) + " ";
    return {1, stream};
  }
  void wait(cm::agent stream, cm::event point)
  {
    text +=
        std::to_string(static_cast<int>(stream)) + " waits for " + std::to_string(static_cast<int>(point.source)) + " ";
  }
  std::string told()
  {
    std::string said = std::move(text);
    text.clear();
    return said;
  }

  std::string text;
  std::byte memory[16] = {};
  std::size_t used = 0;
  int adopted = 3;
};

}  // namespace

TEST_CASE("a stream is adopted once, and its leases are its own", "[interop]")
{
  notes m;
  cm::interop::stream_leases<notes, int> leases{m};
  void* const first = leases.take(7, cm::tier::device, 100, 256);
  CHECK(m.told() == "adopt 7 lease device 100 for 4 ");
  void* const second = leases.take(7, cm::tier::device, 0, 1);
  CHECK(m.told() == "lease device 1 for 4 ");
  void* const third = leases.take(cm::tier::host, 100, 64);
  CHECK(m.told() == "lease host 100 for 0 ");
  CHECK(leases.live() == 3);
  leases.give(7, first, 100);
  CHECK(m.told() == "end ");
  leases.give(7, second, 0);
  leases.give(third, 100);
  CHECK(m.told() == "end end ");
  CHECK((leases.live() == 0 && leases.unknown_returns() == 0 && leases.unordered_returns() == 0));
}

TEST_CASE("what comes back in another stream is ordered behind it first", "[interop]")
{
  notes m;
  cm::interop::stream_leases<notes, int> leases{m};
  void* const first = leases.take(7, cm::tier::device, 100, 256);
  void* const second = leases.take(cm::tier::device, 100, 256);
  (void)m.told();
  leases.give(9, first, 100);
  CHECK(m.told() == "adopt 9 record 5 4 waits for 5 end ");
  leases.give(7, second, 100);
  CHECK(m.told() == "record 4 0 waits for 4 end ");
}

TEST_CASE("what is wrong is refused or counted", "[interop]")
{
  notes m;
  cm::interop::stream_leases<notes, int> leases{m};
  CHECK_THROWS_AS((void)leases.take(0, cm::tier::device, 100, 256), cm::usage_error);
  CHECK_THROWS_AS((void)leases.take(cm::tier::device, 100, 512), std::bad_alloc);
  CHECK(m.told().empty());
  void* const data = leases.take(cm::tier::device, 100, 256);
  leases.give(data, 101);
  leases.give(7, &m, 100);
  CHECK(leases.unknown_returns() == 2);
  leases.give(0, data, 100);
  CHECK(leases.unordered_returns() == 1);
  CHECK(leases.live() == 0);
}

}  // namespace stream_leases_test

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
