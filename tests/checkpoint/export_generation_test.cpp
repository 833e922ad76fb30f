// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/export_values.hpp>

#include "small_model.hpp"

#include <chunkmem/checkpoint/import_values.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <support/memory_folder.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace export_generation_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using Catch::Matchers::ContainsSubstring;
using support::memory_folder;

namespace {

auto opened(const memory_folder& folder)
{
  return checkpoint::safetensors_file{folder.open("all"), "all"};
}

/// All elements of a tensor of the export, as float.
std::vector<float> floats(const memory_folder& folder, std::string_view name)
{
  auto file = opened(folder);
  const checkpoint::stored_index index{file.tensors(), file.payload()};
  const auto* const it = index.find(name);
  REQUIRE(it != nullptr);
  std::vector<float> values(it->runs.front().elements);
  checkpoint::read_elements(file, *it, 0, values.size(), reinterpret_cast<std::byte*>(values.data()),
                            cm::dtype::float32);
  return values;
}

/// A bf16 weight with a master that has more digits, and an optimizer's list.
struct trained {
  explicit trained(std::string_view name = "w")
  {
    m.use(lists);
    m.name(w, name);
    for (auto& it : m.acquire(w, cm::access::write).span()) it = cm::round_to<cm::bf16>(1.0F);
    for (float& it : m.acquire<float>(w, m.list("master"), cm::access::write, cm::memory_location::host).span())
      it = 1.001F;
    for (float& it : m.acquire<float>(w, m.list("momentum"), cm::access::write, cm::memory_location::host).span())
      it = 5;
    m.state("turn", std::as_writable_bytes(std::span{&turn, 1}));
  }
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::tensor<cm::bf16> w = m.add<cm::bf16>({6, 3}, cm::role::parameter);
  std::vector<cm::list_spec> lists{cm::master_list, {"momentum", cm::dtype::float32}};
  int turn = 3;
};

}  // namespace

TEST_CASE("an export into a narrower type refuses what would become infinite, and leaves the older file",
          "[checkpoint]")
{
  memory_folder folder, to;
  trained model;
  for (float& it :
       model.m.acquire<float>(model.w, model.m.list("master"), cm::access::write, cm::memory_location::host).span())
    it = 1e5F;
  (void)checkpoint::save(model.m, folder);
  CHECK(checkpoint::export_generation(folder, to, "all").number == 1);
  CHECK_THROWS_WITH(checkpoint::export_generation(folder, to, "all", {.type = cm::dtype::float16}),
                    ContainsSubstring("18 of the elements of w are finite"));
  CHECK(to.names() == std::vector<std::string>{"all"});
  CHECK(floats(to, "w").front() == 1e5F);
  const auto made =
      checkpoint::export_generation(folder, to, "all", {.type = cm::dtype::float16, .allow_overflow = true});
  CHECK(made.rounded == checkpoint::rounded_numbers{.overflows = 18});
  CHECK(std::isinf(floats(to, "w").front()));
}

TEST_CASE("weights and buffers of a generation become one file, whatever files it has", "[checkpoint]")
{
  memory_folder folder;
  memory_folder to;
  small_model model;
  model.fill(2.0F);
  (void)checkpoint::save(model.m, folder, {.file_size = 1_B});
  CHECK(checkpoint::export_generation(folder, to, "all") == 1);
  CHECK(to.names() == std::vector<std::string>{"all"});
  CHECK(floats(to, "b") == std::vector<float>(300, -4.0F));
  CHECK(floats(to, "half") == std::vector<float>(3, 6.0F));
  const auto file = opened(to);
  REQUIRE(file.tensors().size() == 3);
  CHECK(file.tensors()[0].name == "a");
  CHECK(file.tensors()[0].extents == std::vector<std::uint64_t>{2, 4});
  CHECK(file.tensors()[2].type == cm::dtype::bfloat16);
  CHECK(checkpoint::export_generation(folder, folder, "all") == 1);  // into the same folder, while nobody saves
  CHECK(checkpoint::is_whole(folder, 1));
}

TEST_CASE("masters go out in 32 bits or as they are wanted, states not at all", "[checkpoint]")
{
  memory_folder folder;
  memory_folder to;
  trained model;
  (void)checkpoint::save(model.m, folder);
  (void)checkpoint::export_generation(folder, to, "all");
  CHECK(opened(to).tensors().size() == 1);
  CHECK(floats(to, "w") == std::vector<float>(18, 1.001F));
  (void)checkpoint::export_generation(folder, to, "all", {.type = cm::dtype::bfloat16});
  CHECK(opened(to).tensors()[0].type == cm::dtype::bfloat16);
  CHECK(floats(to, "w") == std::vector<float>(18, 1.0F));
  (void)checkpoint::export_generation(folder, to, "all", {.type = cm::dtype::int32});  // no real type: nothing changes
  CHECK(opened(to).tensors()[0].type == cm::dtype::float32);
}

TEST_CASE("the newest whole generation goes out, or the one that is asked for", "[checkpoint]")
{
  memory_folder folder;
  memory_folder to;
  small_model model;
  CHECK_THROWS_AS(checkpoint::export_generation(folder, to, "all"), cm::io_error);
  for (int number = 1; number <= 3; ++number) {
    model.fill(static_cast<float>(number));
    (void)checkpoint::save(model.m, folder, {.keep = 3});
  }
  folder.flip("generation-000003-00000.safetensors", 1400);
  CHECK(checkpoint::export_generation(folder, to, "all") == 2);
  CHECK(floats(to, "a").front() == 2);
  CHECK(checkpoint::export_generation(folder, to, "all", {.generation = 1}) == 1);
  CHECK(floats(to, "a").front() == 1);
  CHECK_THROWS_AS(checkpoint::export_generation(folder, to, "all", {.generation = 3}), cm::corrupt_data);
  CHECK_THROWS_AS(checkpoint::export_generation(folder, to, "all", {.generation = 9}), cm::io_error);
  CHECK_THROWS_AS(checkpoint::export_generation(folder, to, "generation-1"), cm::usage_error);
  CHECK(floats(to, "a").front() == 1);
}

}  // namespace export_generation_test
