// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/registry.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <support/catch.hpp>

#include <vector>

namespace slot_table_test {

using namespace chunkmem;

namespace {

slot_table of_sizes(const std::vector<std::uint64_t>& sizes)
{
  slot_table table;
  table.slots.resize(sizes.size());
  for (std::size_t index = 0; index < sizes.size(); ++index) table.slots[index].size = sizes[index];
  return table;
}

}  // namespace

TEST_CASE("slots are placed in the order that is given, each list in chunks of its own", "[manager]")
{
  slot_table table = of_sizes({100, 256, 600, 300});
  table.place(std::vector<slot_id>{slot_id{2}, slot_id{0}}, append_layout{}, bytes{512});
  table.place(std::vector<slot_id>{slot_id{3}}, append_layout{}, bytes{512});
  table.finish();
  CHECK((table.slots[2].chunk == chunk_id{0} && table.slots[2].offset == 0));
  CHECK((table.slots[0].chunk == chunk_id{1} && table.slots[0].offset == 0));
  CHECK(table.slots[3].chunk == chunk_id{2});
  CHECK(table.slots[1].chunk == chunk_id::none);
  CHECK(table.frames_of_chunk == sequence<std::uint32_t>{2, 1, 1});
  CHECK(table.used == sequence<std::uint64_t>{768, 256, 512});
  CHECK(table.chunk_of_slot == sequence<std::uint32_t>{1, index_of(chunk_id::none), 0, 2});
}

TEST_CASE("a layout that arranges sees all slots of a list at once", "[manager]")
{
  slot_table table = of_sizes({512, 512, 1'024, 1'024});
  table.place(std::vector<slot_id>{slot_id{0}, slot_id{1}, slot_id{2}, slot_id{3}}, size_class_layout{}, bytes{1'536});
  CHECK(table.frames_of_chunk.size() == 2);
  CHECK(table.slots[0].chunk == table.slots[2].chunk);
}

}  // namespace slot_table_test
