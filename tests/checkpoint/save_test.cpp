#include <chunkmem/checkpoint/save.hpp>

#include "small_model.hpp"

#include <chunkmem/checkpoint/whole_generation.hpp>

#include <algorithm>
#include <vector>

namespace save_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using cm::io::posix_folder;

namespace {

std::vector<std::string> sorted_names(const posix_folder& folder)
{
  std::vector<std::string> names = folder.names();
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("a save writes files of the size asked for, each tensor whole and aligned", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  small_model model;
  const auto saved = checkpoint::save(model.m, folder, {.file_size = 32_B});
  CHECK(saved.number == 1);
  CHECK(saved.files == 3);
  const auto found = checkpoint::check_generation(folder, 1);
  REQUIRE(found.files.size() == 3);
  CHECK(found.files[0].tensors == std::vector<checkpoint::stored_tensor>{{"a", cm::dtype::float32, {2, 4}, 0, 32}});
  CHECK(found.files[1].tensors[0].name == "b");
  CHECK(found.files[2].tensors[0].name == "half");
  std::uint64_t all = 0;
  for (const auto& file : found.content.files) all += file.size;
  CHECK(saved.size.count() == all);
  for (const auto& file : found.files) CHECK(file.payload % 256 == 0);

  auto file = folder.open(found.files[1].name);
  std::vector<float> values(300);
  cm::io::read_all(file, found.files[1].payload, std::as_writable_bytes(std::span{values}));
  CHECK(std::count(values.begin(), values.end(), -3.0F) == 300);
}

TEST_CASE("as many generations stay as are to be kept, and other files", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  small_model model;
  for (const char* const name : {"notes.txt", "generation-000001.safetensors", "generation-7.manifest"}) folder.create(name).close();
  for (int turn = 0; turn < 4; ++turn) (void)checkpoint::save(model.m, folder, {.keep = 2});
  CHECK(sorted_names(folder) == std::vector<std::string>{"generation-000001.safetensors", "generation-000003-00000.safetensors",
                                                         "generation-000003.manifest", "generation-000004-00000.safetensors",
                                                         "generation-000004.manifest", "generation-7.manifest", "notes.txt"});
  CHECK(checkpoint::save(model.m, folder, {.keep = 1}).number == 5);
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{5});
}

TEST_CASE("what a killed save left behind is removed by the next one", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  small_model model;
  (void)checkpoint::save(model.m, folder);
  for (const char* const name : {"generation-000002-00000.safetensors", "generation-000002-00001.safetensors.tmp", "generation-000003.manifest.tmp"})
    folder.create(name).close();
  CHECK(checkpoint::save(model.m, folder).number == 2);
  CHECK(folder.names().size() == 4);
}

TEST_CASE("a save that cannot keep anything is refused", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  small_model model;
  CHECK_THROWS_AS(checkpoint::save(model.m, folder, {.keep = 0}), cm::usage_error);
  CHECK_THROWS_AS(checkpoint::save(model.m, folder, {.file_size = 0_B}), cm::usage_error);
  CHECK(folder.names().empty());
}

TEST_CASE("a save costs the trainer no bit, also where the host has no frame left", "[checkpoint]")
{
  // Everything on the device, and a host that has room for one chunk: what it cannot take is read where it lies.
  temporary_folder place;
  posix_folder folder{place.path()};
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 4_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto stack = m.add_stacked<float>(6, {1024}, cm::role::frozen);
  for (std::uint32_t layer = 0; layer < 6; ++layer)
    for (float& value : m.acquire(stack.slice(layer), cm::access::write).span()) value = static_cast<float>(layer);
  CHECK(checkpoint::save(m, folder).size > 24_KiB);
  for (std::uint32_t layer = 0; layer < 6; ++layer)
    CHECK(m.acquire(stack.slice(layer), cm::access::read).span()[1023] == static_cast<float>(layer));
}

}  // namespace save_test
