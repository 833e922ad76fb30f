// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/manager.hpp>

#include <cstdint>
#include <cstdio>

// The program that every consumer in these folders builds: a template parameter swaps the eviction policy, and another
// chunk is evicted.
namespace {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;

/// Loads of a, b, a, c, a onto a device of two chunks. For c the policy evicts the least recently used chunk, or the
/// one that came first.
template <class Eviction>
std::uint64_t loads()
{
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena, Eviction> m{memory, {.chunk_bytes = 4_KiB}};
  const auto a = m.template add<float>({1024}, cm::role::parameter);
  const auto b = m.template add<float>({1024}, cm::role::parameter);
  const auto c = m.template add<float>({1024}, cm::role::parameter);
  for (const auto& it : {a, b, c}) m.acquire(it, cm::access::write, cm::memory_location::host).span()[0] = 1.0F;
  for (const auto& it : {a, b, a, c, a})
    if (m.acquire(it, cm::access::read).span()[0] != 1.0F) return 0;
  return m.report().loads;
}

}  // namespace

int main()
{
  const std::uint64_t of_lru = loads<cm::eviction::lru>();
  const std::uint64_t of_fifo = loads<cm::eviction::fifo>();
  std::printf("loads: lru %u, fifo %u\n", static_cast<unsigned>(of_lru), static_cast<unsigned>(of_fifo));
  return of_lru == 3 && of_fifo == 4 ? 0 : 1;
}
