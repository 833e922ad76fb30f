// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/thrust_device.hpp>

#include "memory_under_test.hpp"
#include "system_under_test.hpp"

#include <chunkmem/backend/on_caller.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/manager/manager.hpp>
#include <conformance/stream_backend.hpp>
#include <support/catch.hpp>
#include <support/refusal.hpp>

#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/transform.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>

using namespace chunkmem;
using backend::on_caller;
using backend::thrust_device;
using backend::thrust_device_options;
using Catch::Matchers::ContainsSubstring;
using tag = system_under_test::tag;
using device = thrust_device<tag>;

static_assert(memory_backend<device> && memory_backend<thrust_device<thrust::cpp::tag>>);
static_assert(!stream_backend<device> && !stream_backend<thrust_device<thrust::cpp::tag>>);
static_assert(stream_backend<on_caller<device>>);
static_assert(device::host_addressable && has_bytes<device>());
static_assert(!std::is_copy_constructible_v<device> && !std::is_move_constructible_v<device>);

namespace {

/// The requests to a user-defined system, and its planned answers.
struct books {
  std::size_t blocks = 0;  ///< live
  std::size_t bytes = 0;   ///< asked for in all
  std::size_t loops = 0;
  enum class answer : std::uint8_t { memory, null, no_memory, failure } when_asked = answer::memory;
  bool loops_fail = false;
};

/// The system under test with records: Thrust finds the functions below in its place.
struct counted : system_under_test::execution_policy<counted> {
  counted() = default;
  explicit counted(books& kept) : kept_in{&kept} {}
  books* kept_in = nullptr;
};

void* malloc(counted& system, std::size_t size)
{
  books& kept = *system.kept_in;
  switch (kept.when_asked) {
    case books::answer::null: return nullptr;
    case books::answer::no_memory: throw std::bad_alloc{};
    case books::answer::failure: throw std::runtime_error{"the system is on fire"};
    default: break;
  }
  ++kept.blocks;
  kept.bytes += size;
  return std::malloc(size);
}

template <class Pointer>
void free(counted& system, Pointer place)
{
  --system.kept_in->blocks;
  std::free(thrust::raw_pointer_cast(place));
}

template <class Iterator, class Size, class Work>
Iterator for_each_n(counted& system, Iterator first, Size count, Work work)
{
  ++system.kept_in->loops;
  if (system.kept_in->loops_fail) throw std::runtime_error{"the system is on fire"};
  return thrust::for_each_n(tag{}, first, count, work);
}

/// Distinct bytes that no period of a part hides.
std::byte pattern(std::uint64_t index)
{
  return std::byte(index * 7 + index / 251);
}

}  // namespace

namespace on_thrust {

namespace {
struct memory_of_system final : any_memory {
  explicit memory_of_system(const capacities& limits)
      : memory{{.device_capacity = limits.device_capacity, .host_capacity = limits.host_capacity}}
  {
  }
  [[nodiscard]] bytes capacity(tier where) const override { return memory.capacity(where); }
  [[nodiscard]] std::byte* allocate(tier where, bytes size) override { return memory.allocate(where, size); }
  void release(tier where, std::byte* place) noexcept override { memory.release(where, place); }
  void copy(std::byte* to, const std::byte* from, bytes size) override { memory.copy(to, from, size); }
  void fill(std::byte* to, std::byte value, bytes size) override { memory.fill(to, value, size); }
  device memory;
};
}  // namespace

std::unique_ptr<any_memory> make_memory(const capacities& limits)
{
  return std::make_unique<memory_of_system>(limits);
}

}  // namespace on_thrust

TEST_CASE("thrust_device keeps the laws of a memory backend", "[backend_thrust]")
{
  conformance::memory_backend_laws<device>(
      [](bytes there, bytes here) { return device{{.device_capacity = there, .host_capacity = here}}; });
}

TEST_CASE("on_caller makes a stream backend of thrust_device", "[backend_thrust]")
{
  conformance::stream_backend_laws<on_caller<device>>([](bytes there, bytes here) {
    return on_caller<device>{thrust_device_options{.device_capacity = there, .host_capacity = here}};
  });
}

TEST_CASE("copies and fills of every size write their bytes and no others", "[backend_thrust]")
{
  constexpr std::uint64_t room = 12'000;
  device mem{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  const conformance::block<device> here{mem, tier::host, bytes{room}};
  const conformance::block<device> there{mem, tier::device, bytes{room}};
  for (std::uint64_t index = 0; index < room; ++index) here.data()[index] = pattern(index);
  for (const std::uint64_t size : {0u, 1u, 255u, 256u, 1'023u, 1'024u, 1'025u, 2'048u, 4'096u, 4'097u, 9'999u}) {
    for (const std::uint64_t shift : {0u, 1u, 100u}) {
      CAPTURE(size, shift);
      mem.fill(there.data(), std::byte{0xA5}, bytes{room});
      mem.copy(there.data() + shift, here.data() + 2 * shift, bytes{size});
      const auto is_left_alone = [](std::byte it) { return it == std::byte{0xA5}; };
      CHECK(std::all_of(there.data(), there.data() + shift, is_left_alone));
      CHECK(std::memcmp(there.data() + shift, here.data() + 2 * shift, size) == 0);
      CHECK(std::all_of(there.data() + shift + size, there.data() + room, is_left_alone));
      mem.fill(there.data() + shift, std::byte{0x11}, bytes{size});
      CHECK(std::count(there.data(), there.data() + room, std::byte{0x11}) == static_cast<std::ptrdiff_t>(size));
      CHECK(std::all_of(there.data() + shift + size, there.data() + room, is_left_alone));
    }
  }
}

TEST_CASE("memory of the device tier is the system's, and so are copies and fills", "[backend_thrust]")
{
  books kept;
  {
    thrust_device<counted> mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}, counted{kept}};
    std::byte* const there = mem.allocate(tier::device, 10'000_B);
    CHECK(kept.blocks == 1);
    CHECK(kept.bytes >= 10'000);
    CHECK(kept.bytes <= 10'000 + 263);
    std::byte* const here = mem.allocate(tier::host, 10'000_B);
    CHECK(kept.blocks == 1);
    mem.fill(here, std::byte{3}, 10'000_B);
    mem.copy(there, here, 10'000_B);
    CHECK(kept.loops == 2);
    CHECK(std::count(there, there + 10'000, std::byte{3}) == 10'000);
    mem.release(tier::device, there);
    CHECK(kept.blocks == 0);
    mem.release(tier::host, here);
    for (int round = 0; round < 3; ++round) CHECK(mem.allocate(tier::device, 100_KiB) != nullptr);
    CHECK(mem.allocate(tier::host, 100_KiB) != nullptr);
    CHECK(kept.blocks == 3);
  }
  CHECK(kept.blocks == 0);  // what was not released
}

TEST_CASE("a system without memory is out_of_memory, one that fails a device_error, and nothing is changed",
          "[backend_thrust]")
{
  books kept;
  thrust_device<counted> mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}, counted{kept}};
  for (const books::answer none : {books::answer::null, books::answer::no_memory}) {
    kept.when_asked = none;
    try {
      (void)mem.allocate(tier::device, 1_MiB);
      FAIL("memory came from nowhere");
    } catch (const out_of_memory& refused) {
      CHECK(refused.shortage().refused);
      CHECK(refused.shortage().requested == (1_MiB).count());
      CHECK(refused.shortage().pinned == 0);
    }
  }
  kept.when_asked = books::answer::failure;
  CHECK_THROWS_AS(mem.allocate(tier::device, 1_MiB), device_error);
  kept.when_asked = books::answer::memory;
  std::byte* const place = mem.allocate(tier::device, 1_MiB);  // the refusals took nothing

  kept.loops_fail = true;
  CHECK_THAT(support::refusal<device_error>([&] { mem.fill(place, std::byte{}, 1_MiB); }),
             ContainsSubstring("Thrust failed to fill 1048576 B: the system is on fire"));
  CHECK_THROWS_AS(mem.copy(place, place + 4'096, 4_KiB), device_error);
  kept.loops_fail = false;
  CHECK_NOTHROW(mem.fill(place, std::byte{}, 1_MiB));
}

TEST_CASE("memory that the machine does not have is out_of_memory below the capacity too", "[backend_thrust]")
{
  device mem{{.device_capacity = bytes{UINT64_MAX}, .host_capacity = bytes{UINT64_MAX}}};
  for (const tier where : {tier::device, tier::host})
    for (const std::uint64_t absurd : {std::uint64_t{PTRDIFF_MAX} - 100, UINT64_MAX - 263, UINT64_MAX})
      CHECK_THROWS_AS(mem.allocate(where, bytes{absurd}), out_of_memory);
  CHECK(mem.allocate(tier::device, 1_B) != nullptr);
}

TEST_CASE("thrust_device refuses null addresses and counts releases of what it does not hold", "[backend_thrust]")
{
  device mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  std::byte* const place = mem.allocate(tier::host, 64_B);
  CHECK_THROWS_AS(mem.copy(nullptr, place, 64_B), usage_error);
  CHECK_THROWS_AS(mem.copy(place, nullptr, 64_B), usage_error);
  CHECK_THROWS_AS(mem.fill(nullptr, std::byte{}, 64_B), usage_error);
  CHECK_NOTHROW(mem.copy(nullptr, nullptr, 0_B));
  std::byte foreign{};
  std::byte* volatile elsewhere = &foreign;  // so that no compiler thinks ahead and warns
  mem.release(tier::host, elsewhere);
  mem.release(tier::device, place);  // of the other tier
  CHECK(mem.unknown_releases() == 2);
  mem.release(tier::host, place);
  CHECK(mem.unknown_releases() == 2);
}

TEST_CASE("Thrust algorithms are kernels on tensors that come and go", "[backend_thrust]")
{
  using memory = on_caller<device>;
  constexpr std::uint64_t count = 3'000;
  constexpr std::uint32_t tensors = 6;
  memory mem{thrust_device_options{.device_capacity = 32_KiB, .host_capacity = 256_KiB}};
  manager<memory> m{mem, {.chunk_bytes = 4_KiB}};
  const auto weights = m.add_stacked<float>(tensors, {count}, role::buffer);
  for (std::uint32_t index = 0; index < tensors; ++index) {
    const auto pin = m.acquire(weights.slice(index), access::write);
    thrust::sequence(tag{}, pin.data(), pin.data() + count, static_cast<float>(index));
  }
  for (std::uint32_t index = 1; index < tensors; ++index) {
    const auto before = m.acquire(weights.slice(index - 1), access::read);
    const auto pin = m.acquire(weights.slice(index), access::read_write);
    mem.launch(agent::compute, [in = before.data(), out = pin.data()] {
      thrust::transform(tag{}, in, in + count, out, out, thrust::plus<float>{});
    });
  }
  for (std::uint32_t index = 0; index < tensors; ++index) {
    const auto pin = m.acquire(weights.slice(index), access::read);
    CHECK(pin.data()[count - 1] ==
          static_cast<float>((index + 1) * (count - 1) + index * (index + 1) / 2));  // exact below 2^24
    CHECK(thrust::reduce(tag{}, pin.data(), pin.data() + 10) ==
          static_cast<float>(45 * (index + 1) + 5 * index * (index + 1)));
  }
  CHECK(m.report().loads > 0);
}
