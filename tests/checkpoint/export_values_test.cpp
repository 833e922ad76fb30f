#include <chunkmem/checkpoint/export_values.hpp>

#include "rig.hpp"

#include <chunkmem/checkpoint/whole_generation.hpp>

#include <filesystem>

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using cm::io::posix_folder;

TEST_CASE("weights and buffers go into one file as they are computed with", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  arena_rig<cm::bf16> run{surroundings{}, recipe_for(mixed::precision::bf16, 3)};
  run.initialise();
  run.train(3);
  for (int turn = 0; turn < 2; ++turn) checkpoint::export_values(run.m, folder, "model.safetensors");  // the second replaces the first
  CHECK(folder.names() == std::vector<std::string>{"model.safetensors"});

  auto file = folder.open("model.safetensors");
  const auto found = checkpoint::detail::read_header(file, "model.safetensors", file.size(), {});
  std::size_t weights = 0;
  run.m.for_each_parameter([&](cm::tensor_handle it, const cm::tensor_info& info) {
    for (const auto& stored : found.tensors) {
      if (stored.name != run.m.name_of(it)) continue;
      ++weights;
      CHECK(stored.type == info.type);
      std::vector<std::byte> bytes(stored.size());
      cm::io::read_all(file, found.payload + stored.begin, bytes);
      const auto pin = run.m.acquire_bytes(it, cm::value_list, cm::access::read, cm::at::host);
      const auto right = std::as_bytes(pin.span());
      CHECK(std::equal(bytes.begin(), bytes.end(), right.begin(), right.end()));
    }
  });
  std::size_t parameters = 0;
  run.m.for_each_parameter([&](cm::tensor_handle, const cm::tensor_info&) { ++parameters; });
  CHECK(weights == parameters);
  for (const auto& stored : found.tensors) {
    CHECK(stored.name.find('/') == std::string::npos);
    CHECK(stored.begin % cm::size_of(stored.type) == 0);
  }
}

TEST_CASE("an export that fails leaves the older file", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  arena_rig<cm::bf16> run{surroundings{}, recipe_for(mixed::precision::bf16, 1)};
  run.initialise();
  checkpoint::export_values(run.m, folder, "model.safetensors");
  const auto size = std::filesystem::file_size(place.path() + "/model.safetensors");
  std::filesystem::create_directory(place.path() + "/model.safetensors.tmp");  // in the way
  CHECK_THROWS_AS(checkpoint::export_values(run.m, folder, "model.safetensors"), cm::io_error);
  CHECK(std::filesystem::file_size(place.path() + "/model.safetensors") == size);
}
