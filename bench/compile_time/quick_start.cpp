// SPDX-License-Identifier: Apache-2.0
// Twenty-four layers of weights on a device that holds a quarter of them.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>

#include <iostream>

namespace cm = chunkmem;
using namespace cm::literals;

int main()
{
  cm::backend::host_arena memory{{.device_capacity = 24_MiB, .host_capacity = 128_MiB}};
  cm::manager<cm::backend::host_arena> m{memory, {.chunk_bytes = 4_MiB}};

  const auto weights = m.add_stacked<float>(24, {1024, 1024}, cm::role::parameter);
  for (std::uint32_t layer = 0; layer < 24; ++layer)
    for (float& x : m.acquire(weights.slice(layer), cm::access::write).span()) x = 1.0F;

  for (int step = 0; step < 3; ++step) {
    const auto iteration = m.iteration();  // the first one is recorded, and the others follow a plan
    for (std::uint32_t layer = 0; layer < 24; ++layer) {
      const auto pin = m.acquire(weights.slice(layer), cm::access::read_write);  // stays in place while pin lives
      for (float& x : pin.span()) x += 1.0F;
    }
  }

  std::cout << m.report();
  const float last = m.acquire(weights.slice(23), cm::access::read).span().back();
  std::cout << "last weight " << last << ", expected 4\n";
  return last == 4.0F ? 0 : 1;
}
