// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/model_writer.hpp>

#include "small_model.hpp"

#include <chunkmem/checkpoint/model_content.hpp>
#include <support/sanitized.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace model_writer_test {

using namespace checkpoints;
using namespace chunkmem::checkpoint;

namespace {

/// The calls of a writer: one text for each file, and their number.
struct told {
  std::vector<std::string> files;
  std::uint64_t header = 0;
  std::uint64_t largest = 0;
  std::uint64_t writes = 0;
  bool is_open = false;

  void begin_file(std::uint64_t size)
  {
    REQUIRE_FALSE(is_open);
    is_open = true;
    header = size;
    files.emplace_back();
  }
  void write(std::span<const std::byte> content)
  {
    REQUIRE(is_open);
    files.back().append(reinterpret_cast<const char*>(content.data()), content.size());
    if (files.back().size() > header) largest = std::max<std::uint64_t>(largest, content.size());
    ++writes;
  }
  void end_file()
  {
    REQUIRE(is_open);
    is_open = false;
  }
};

told write(small_model& model, const save_plan& plan, std::uint64_t most)
{
  told heard;
  model_writer writer{model.m, plan};
  int calls = 0;
  while (!writer.is_done()) {
    writer.write(heard, most);
    REQUIRE(++calls < 10'000);
  }
  CHECK_FALSE(heard.is_open);
  writer.write(heard, most);  // nothing is left
  return heard;
}

}  // namespace

TEST_CASE("a model is handed over in pieces of any size, and is the same", "[checkpoint]")
{
  small_model model;
  const auto items = content_of(model.m);
  for (const cm::bytes file_size : {1_B, 40_B, 1_MiB}) {
    const save_plan plan = plan_of(items, file_size, rest_of(model.m));
    CHECK(plan.files.size() == (file_size == 1_B ? 3 : file_size == 40_B ? 2 : 1));
    const told all = write(model, plan, UINT64_MAX);
    CHECK(all.files.size() == plan.files.size());
    for (const std::uint64_t most : {1U, 7U, 33U, 4096U}) {
      INFO(most << " bytes at a time");
      const told some = write(model, plan, most);
      CHECK(some.files == all.files);
      CHECK(some.largest <= most);
    }
  }
}

TEST_CASE("pieces of an item are written from their places, whole tensors under their names and parts under theirs",
          "[checkpoint]")
{
  small_model model;
  auto items = content_of(model.m);
  for (model_item& it : items) {
    if (it.name == "half") it.is_written = false;  // another rank's
    if (it.name == "b") it.pieces = {{"x", {4}, 0, 4, 20}, {"y", {10, 10}, 30, 50, 100}};
  }
  float next = 0;
  for (float& it : model.m.acquire(model.b, cm::access::write).span()) it = next++;
  const save_plan plan = plan_of(items, 40_B, {});
  REQUIRE(plan.files.size() == 2);
  const auto table = read_table(std::string_view{plan.tables[1]}.substr(8), 200);
  REQUIRE(table.size() == 1);
  CHECK(table[0].name == "y[30:80]");
  CHECK(table[0].extents == std::vector<std::uint64_t>{50});
  const told all = write(model, plan, 11);
  REQUIRE(all.files.size() == 2);
  const auto floats_at = [&](std::size_t file, std::size_t from) {
    float value = 0;
    std::memcpy(&value, all.files[file].data() + plan.tables[file].size() + from * 4, 4);
    return value;
  };
  CHECK(floats_at(1, 0) == 100);
  CHECK(floats_at(1, 49) == 149);
  const auto first =
      read_table(std::string_view{plan.tables[0]}.substr(8), all.files[0].size() - plan.tables[0].size());
  for (const stored_tensor& it : first)
    if (it.name == "x") CHECK(floats_at(0, it.begin / 4) == 20);
}

TEST_CASE("what a manifest cannot hold is refused before anything is written, also as all ranks together make it",
          "[checkpoint]")
{
  if (support::sanitized) return;  // tens of MB of text, of which only the length counts
  small_model model;
  const auto items = content_of(model.m);
  manifest rest;
  rest.empty.assign(4000, std::string(4000, 'x'));
  CHECK_NOTHROW(plan_of(items, 1_B, rest));
  CHECK_THROWS_AS(plan_of(items, 1_B, rest, 100'000), cm::config_error);
  rest.empty.assign(10'000, std::string(4000, 'x'));
  CHECK_THROWS_AS(plan_of(items, 1_B, rest), cm::config_error);
}

TEST_CASE("the rest of a manifest names the lists", "[checkpoint]")
{
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const std::vector<cm::list_spec> lists{{"momentum", cm::dtype::float32, 4}};
  m.use(lists);
  const manifest rest = rest_of(m);
  CHECK(rest.lists == std::vector<stored_list>{{"momentum", 4}});
}

}  // namespace model_writer_test
