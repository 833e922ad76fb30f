// SPDX-License-Identifier: Apache-2.0
// Another eviction policy is another template argument. The results keep their bits, only the copies change.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <concepts>
#include <iostream>

namespace cm = chunkmem;
using namespace cm::literals;
using host = cm::backend::host_arena;

using usual = cm::manager<host>;                                                // all defaults
using plain = cm::manager<host, cm::eviction::lru, cm::transfer::no_prefetch>;  // two replaced, the rest default
static_assert(std::same_as<plain, cm::manager<host, cm::transfer::no_prefetch, cm::eviction::lru>>);  // order is free

/// Walks 16 layers in a cycle, with room for six, and returns the sum of the last one.
template <class Manager>
double walk(const char* name, std::uint64_t& loads)
{
  host memory{{.device_capacity = 6_MiB, .host_capacity = 32_MiB}};
  Manager m{memory, {.chunk_bytes = 1_MiB}};
  const auto layers = m.template add_stacked<float>(16, {512, 512}, cm::role::parameter);
  for (std::uint32_t index = 0; index < 16; ++index)
    for (float& x : m.acquire(layers.slice(index), cm::access::write).span()) x = static_cast<float>(index);
  for (int step = 0; step < 5; ++step) {
    const auto iteration = m.iteration();
    for (std::uint32_t index = 0; index < 16; ++index)
      for (float& x : m.acquire(layers.slice(index), cm::access::read_write).span()) x *= 0.5F;
  }
  double sum = 0;
  for (const float x : m.acquire(layers.slice(15), cm::access::read).span()) sum += static_cast<double>(x);
  loads = m.report().loads;
  std::cout << name << ": " << loads << " loads, sum " << sum << '\n';
  return sum;
}

int main()
{
  std::uint64_t belady = 0;
  std::uint64_t lru = 0;
  const bool same = walk<usual>("belady with lookahead", belady) == walk<plain>("lru on demand", lru);
  return same && belady < lru ? 0 : 1;
}
