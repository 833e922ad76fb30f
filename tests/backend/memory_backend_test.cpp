// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/stream_backend.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <conformance/memory_backend.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>

namespace memory_backend_test {

using namespace chunkmem;

namespace {

/// No more than the concept asks for.
struct archetype {
  static constexpr bool host_addressable = true;
  bytes capacity(tier) const { return {}; }
  std::byte* allocate(tier, bytes) { return nullptr; }
  void release(tier, std::byte*) noexcept {}
  void copy(std::byte*, const std::byte*, bytes) {}
  void fill(std::byte*, std::byte, bytes) {}
};
static_assert(memory_backend<archetype>);

struct without_capacity : archetype {
  bytes capacity(tier) const = delete;
};
struct with_capacity_in_integers : archetype {
  std::uint64_t capacity(tier) const { return 0; }
};
struct without_allocate : archetype {
  std::byte* allocate(tier, bytes) = delete;
};
struct with_a_release_that_throws : archetype {
  void release(tier, std::byte*) {}
};
struct without_copy : archetype {
  void copy(std::byte*, const std::byte*, bytes) = delete;
};
struct without_fill : archetype {
  void fill(std::byte*, std::byte, bytes) = delete;
};
struct with_private_addressability : archetype {
 private:
  using archetype::host_addressable;
};
static_assert(!memory_backend<without_capacity> && !limits_tiers<without_capacity>);
static_assert(!memory_backend<with_capacity_in_integers>);
static_assert(!memory_backend<without_allocate> && !allocates_tiers<without_allocate>);
static_assert(!memory_backend<with_a_release_that_throws>);
static_assert(!memory_backend<without_copy> && !copies_bytes<without_copy>);
static_assert(!memory_backend<without_fill>);
static_assert(!memory_backend<with_private_addressability>);
static_assert(!memory_backend<int>);

}  // namespace

TEST_CASE("every backend keeps the laws of a memory backend", "[backend]")
{
  conformance::memory_backend_laws<backend::host_arena>(
      [](bytes device, bytes host) { return backend::host_arena{{.device_capacity = device, .host_capacity = host}}; });
  conformance::memory_backend_laws<backend::simulated>(
      [](bytes device, bytes host) { return backend::simulated{{.device_capacity = device, .host_capacity = host}}; });
  conformance::memory_backend_laws<support::adversarial>([](bytes device, bytes host) {
    return support::adversarial{{.device_capacity = device, .host_capacity = host}};
  });
}

}  // namespace memory_backend_test
