// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/interop/tier_memory.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>

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
