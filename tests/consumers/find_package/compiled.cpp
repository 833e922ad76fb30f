// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/compiled_manager.hpp>

#include <cstdint>
#include <cstdio>

// Twelve layers on a device that holds three, in three iterations: the manager comes from the library.
int main()
{
  namespace cm = chunkmem;
  using namespace cm::literals;
  cm::backend::host_arena memory{{.device_capacity = 12_KiB, .host_capacity = 64_KiB}};
  cm::compiled_manager m{memory, {.chunk_bytes = 4_KiB}};
  const auto weights = m.add_stacked<float>(12, {1024}, cm::role::parameter);
  for (std::uint32_t layer = 0; layer < 12; ++layer)
    for (float& x : m.acquire(weights.slice(layer), cm::access::write).span()) x = 1.0F;
  for (int step = 0; step < 3; ++step) {
    const auto iteration = m.iteration();
    for (std::uint32_t layer = 0; layer < 12; ++layer)
      for (float& x : m.acquire(weights.slice(layer), cm::access::read_write).span()) x += 1.0F;
  }
  const float last = m.acquire(weights.slice(11), cm::access::read).span().back();
  std::printf("last weight %g, expected 4\n", static_cast<double>(last));
  return last == 4.0F && m.report().loads > 0 ? 0 : 1;
}
