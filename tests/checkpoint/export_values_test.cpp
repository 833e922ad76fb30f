#include <chunkmem/checkpoint/export_values.hpp>

#include "small_model.hpp"

#include <chunkmem/checkpoint/whole_generation.hpp>

#include <filesystem>
#include <vector>

namespace export_values_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using cm::io::posix_folder;

namespace {

/// A 16-bit weight with a master and a momentum, and a registered state.
struct trained_model {
  trained_model()
  {
    m.name(weight, "weight");
    m.use(lists);
    m.state("turn", std::as_writable_bytes(std::span{&turn, 1}));
    for (auto& it : m.acquire(weight, cm::access::write).span()) it = cm::round_to<cm::bf16>(1.0F);
    for (auto& it : m.acquire(table, cm::access::write).span()) it = 7;
    { const auto scope = m.iteration(); }  // makes the master
    for (float& it : m.acquire<float>(weight, m.list("momentum"), cm::access::write, cm::at::host).span()) it = 0.5F;
  }
  std::vector<cm::list_spec> lists{cm::master_list, {"momentum"}};
  int turn = 0;
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::tensor<cm::bf16> weight = m.add<cm::bf16>({5, 3}, cm::role::parameter);
  cm::tensor<std::int64_t> table = m.add<std::int64_t>({4}, cm::role::buffer);
};

}  // namespace

TEST_CASE("weights and buffers go into one file as they are computed with", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  trained_model model;
  for (int turn = 0; turn < 2; ++turn) checkpoint::export_values(model.m, folder, "model.safetensors");  // the second replaces the first
  CHECK(folder.names() == std::vector<std::string>{"model.safetensors"});
  auto file = folder.open("model.safetensors");
  const auto found = checkpoint::detail::read_header(file, "model.safetensors", file.size(), {});
  CHECK(found.tensors == std::vector<checkpoint::stored_tensor>{{"tensor.1", cm::dtype::int64, {4}, 0, 32}, {"weight", cm::dtype::bfloat16, {5, 3}, 32, 62}});
  std::vector<cm::bf16> weights(15);
  cm::io::read_all(file, found.payload + 32, std::as_writable_bytes(std::span{weights}));
  for (const cm::bf16 it : weights) CHECK(cm::to_float(it) == 1.0F);
}

TEST_CASE("an export that fails leaves the older file", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  trained_model model;
  checkpoint::export_values(model.m, folder, "model.safetensors");
  const auto size = std::filesystem::file_size(place.path() + "/model.safetensors");
  std::filesystem::create_directory(place.path() + "/model.safetensors.tmp");  // in the way
  CHECK_THROWS_AS(checkpoint::export_values(model.m, folder, "model.safetensors"), cm::io_error);
  CHECK(std::filesystem::file_size(place.path() + "/model.safetensors") == size);
}

}  // namespace export_values_test
