// SPDX-License-Identifier: Apache-2.0
// A user-defined eviction policy: a rule of a few lines, without changes anywhere else.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>

#include <iostream>
#include <string_view>
#include <utility>

namespace cm = chunkmem;
using namespace cm::literals;

/// Evicts clean chunks first, which costs no copy, and among those the one with the lowest number.
struct clean_first_rule {
  static constexpr std::string_view name = "clean_first";
  static std::pair<bool, std::uint32_t> key(const cm::eviction::candidate& it)
  {
    return {it.dirty, cm::index_of(it.chunk)};
  }
};
using clean_first = cm::eviction::scanning<clean_first_rule>;
static_assert(cm::eviction_policy<clean_first>);

int main()
{
  cm::backend::host_arena memory{{.device_capacity = 3_MiB, .host_capacity = 16_MiB}};
  cm::manager<cm::backend::host_arena, clean_first> m{memory, {.chunk_bytes = 1_MiB}};
  const auto table = m.add<float>({512, 512}, cm::role::buffer);
  const auto layers = m.add_stacked<float>(8, {512, 512}, cm::role::parameter);
  for (float& x : m.acquire(table, cm::access::write).span()) x = 0.0F;
  for (std::uint32_t index = 0; index < 8; ++index)
    for (float& x : m.acquire(layers.slice(index), cm::access::write).span()) x = static_cast<float>(index);

  for (int step = 0; step < 4; ++step) {
    const auto iteration = m.iteration();
    for (std::uint32_t index = 0; index < 8; ++index) {  // adds every layer to the table; the layers stay clean
      const auto sum = m.acquire(table, cm::access::read_write);
      const auto layer = m.acquire(layers.slice(index), cm::access::read);
      for (std::size_t i = 0; i < sum.span().size(); ++i) sum.span()[i] += layer.span()[i];
    }
  }

  const float sum = m.acquire(table, cm::access::read).span()[7];
  std::cout << "sum " << sum << ", expected 112; " << m.report().evictions << " evictions by " << clean_first::name
            << '\n';
  return sum == 112.0F && m.report().evictions > 0 ? 0 : 1;
}
