// SPDX-License-Identifier: Apache-2.0
// chunkmem's accesses as a plain function, for access.py.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace cm = chunkmem;

extern "C" {

/// Acquires and releases each tensor of a resident model, `passes` times in each of `iterations`.
/// @return   time of each access in the fastest iteration [ns]
double peer_accesses(std::uint32_t tensors, std::uint64_t elements, std::uint32_t passes, std::uint32_t iterations)
{
  const cm::bytes room{tensors * elements * 8};
  cm::backend::host_arena memory{{.device_capacity = room, .host_capacity = room}};
  cm::manager<cm::backend::host_arena> m{memory, {.chunk_bytes = cm::bytes{elements * 32}}};
  std::vector<cm::tensor<float>> all;
  for (std::uint32_t index = 0; index < tensors; ++index) all.push_back(m.add<float>({elements}, cm::role::parameter));
  for (const auto it : all) m.acquire(it, cm::access::write).release();
  double best = 1e300;
  for (std::uint32_t iteration = 0; iteration < iterations; ++iteration) {
    const auto scope = m.iteration();
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint32_t pass = 0; pass < passes; ++pass)
      for (const auto it : all) {
        const auto pin = m.acquire(it, cm::access::read);
        asm volatile("" : : "r"(pin.data()) : "memory");
      }
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    if (iteration > 0) best = std::min(best, taken.count() / (passes * tensors));  // the first one is recorded
  }
  return best;
}

}  // extern "C"
