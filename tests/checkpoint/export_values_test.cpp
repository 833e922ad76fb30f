// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/export_values.hpp>

#include "exchange.hpp"
#include "small_model.hpp"

#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/import_values.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <support/simulated_folder.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
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
    {
      const auto scope = m.iteration();
    }  // makes the master
    for (float& it : m.acquire<float>(weight, m.list("momentum"), cm::access::write, cm::memory_location::host).span())
      it = 0.5F;
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
  // the second replaces the first
  for (int turn = 0; turn < 2; ++turn) checkpoint::export_values(model.m, folder, "model.safetensors");
  CHECK(folder.names() == std::vector<std::string>{"model.safetensors"});
  checkpoint::safetensors_file file{folder.open("model.safetensors"), "model.safetensors"};
  CHECK(file.tensors() == std::vector<checkpoint::stored_tensor>{{"tensor.1", cm::dtype::int64, {4}, 0, 32},
                                                                 {"weight", cm::dtype::bfloat16, {5, 3}, 32, 62}});
  std::vector<cm::bf16> weights(15);
  file.read(0, file.payload() + 32, std::as_writable_bytes(std::span{weights}));
  for (const cm::bf16 it : weights) CHECK(cm::to_float(it) == 1.0F);
}

TEST_CASE("an export that fails leaves the older file", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  trained_model model;
  checkpoint::export_values(model.m, folder, "model.safetensors");
  const auto size = std::filesystem::file_size(place.path() + "/model.safetensors");
  std::filesystem::create_directory(place.path() + "/model");  // in the way
  CHECK_THROWS_AS(checkpoint::export_values(model.m, folder, "model"), cm::io_error);
  CHECK(std::filesystem::file_size(place.path() + "/model.safetensors") == size);
}

TEST_CASE(
    "an export takes another name for its unfinished file where something lies in the way, and says so when no name is "
    "left",
    "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  trained_model model;
  std::filesystem::create_directory(place.path() + "/generation-export.tmp");
  std::filesystem::create_directories(place.path() + "/generation-export-1.tmp/full");
  checkpoint::export_values(model.m, folder, "w");
  auto names = folder.names();
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"generation-export-1.tmp", "generation-export.tmp", "w"});
  std::ofstream{place.path() + "/generation-export-2.tmp"} << "left by an export that was killed";
  (void)checkpoint::save(model.m, folder);
  CHECK_FALSE(std::filesystem::exists(place.path() + "/generation-export-2.tmp"));
  for (unsigned index = 2; index < 100; ++index)
    std::filesystem::create_directory(place.path() + "/generation-export-" + std::to_string(index) + ".tmp");
  CHECK_THROWS_AS(checkpoint::export_values(model.m, folder, "w"), cm::io_error);
  CHECK_THROWS_WITH(
      checkpoint::export_values(model.m, folder, "w"),
      Catch::Matchers::ContainsSubstring("all from generation-export.tmp to generation-export-99.tmp are taken"));
}

TEST_CASE("an export touches no file but the one that it was told, and none of a checkpoint", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  trained_model model;
  (void)checkpoint::save(model.m, folder);
  for (const char* const mine : {"/w.tmp", "/w.export", "/generation-export.tmp"})
    std::ofstream{place.path() + mine} << "kept";
  const auto names = [&] {
    auto found = folder.names();
    std::sort(found.begin(), found.end());
    return found;
  };
  const auto before = names();
  for (const char* const name :
       {"generation-000001.manifest", "generation-000001-00000.safetensors", "generation-000002.manifest.tmp",
        "generation-export.tmp", "generation-", "", "a/b", "/"})
    CHECK_THROWS_AS(checkpoint::export_values(model.m, folder, name), cm::usage_error);
  CHECK(names() == before);
  checkpoint::export_values(model.m, folder, "w");  // and what an export that was killed left is gone
  CHECK(names() == std::vector<std::string>{"generation-000001-00000.safetensors", "generation-000001.manifest", "w",
                                            "w.export", "w.tmp"});
  CHECK(std::filesystem::file_size(place.path() + "/w.tmp") == 4);
  CHECK(checkpoint::load(model.m, folder).skipped.empty());
}

TEST_CASE(
    "whatever operation of an export fails, or whenever the power goes, the older file or the new one is there, whole",
    "[checkpoint]")
{
  trained_model model;
  support::simulated_folder good;
  checkpoint::export_values(model.m, good, "w");
  const std::string whole = good.content().at("w");
  for (std::uint64_t index = 0;; ++index) {
    INFO("operation " << index);
    support::simulated_folder folder{support::disk_content{{"w", "older"}}};
    folder.set_faults({.at = index});
    try {
      checkpoint::export_values(model.m, folder, "w");
    } catch (const cm::io_error&) {
    }
    if (folder.requests().size() <= index) break;
    const bool is_last = folder.requests()[index].what == support::disk_operation::sync_folder;
    const bool is_first = folder.requests()[index].what == support::disk_operation::remove;
    REQUIRE(folder.content() == support::disk_content{{"w", is_last || is_first ? whole : "older"}});
    (void)folder.each_after_cut([&](const support::simulated_folder& left) {
      const std::string found = left.content().at("w");
      CHECK((found == "older" || found == whole));
      return true;
    });
  }
}

namespace {

using checkpoint::stored_tensor;

/// Every byte that there is, NaNs of all kinds in it.
std::string bytes_of(std::size_t size, unsigned number)
{
  std::string content;
  while (content.size() < size)
    content += static_cast<char>(content.size() * 37 + number * 101 + (content.size() >> 8));
  return content;
}

/// Buffers of every element type.
struct model_of_all_types {
  model_of_all_types()
  {
    m.name(singles, "singles é");
    m.name(brains, "layers/0/brains");
    m.name(halves, "halves");
    m.name(ints, "ints");
    m.name(longs, "\"longs\"\n");
    m.name(small, "small");
  }
  /// Calls `use(number, bytes)` for each.
  template <cm::access_choice Access, class Use>
  void each(Access mode, Use use)
  {
    unsigned number = 0;
    const auto one = [&](const auto& it) {
      const auto pin = m.acquire(it, mode);
      use(number++, cm::checkpoint::detail::bytes_of(pin.span()));
    };
    one(singles), one(brains), one(halves), one(ints), one(longs), one(small);
  }
  void fill()
  {
    each(cm::access::write, [](unsigned number, std::span<std::byte> to) {
      const std::string content = bytes_of(to.size(), number);
      std::ranges::copy(std::as_bytes(std::span{content}), to.begin());
    });
  }
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::tensor<float> singles = m.add<float>({16, 20}, cm::role::buffer);
  cm::tensor<cm::bf16> brains = m.add<cm::bf16>({3, 5, 7}, cm::role::frozen);
  cm::tensor<cm::fp16> halves = m.add<cm::fp16>({333}, cm::role::frozen);
  cm::tensor<std::int32_t> ints = m.add<std::int32_t>({1, 1, 99}, cm::role::buffer);
  cm::tensor<std::int64_t> longs = m.add<std::int64_t>({77}, cm::role::buffer);
  cm::tensor<std::uint8_t> small = m.add<std::uint8_t>({257}, cm::role::buffer);
};

}  // namespace

TEST_CASE("Python's safetensors opens what is exported and what is saved, byte for byte", "[checkpoint][.python]")
{
  const python other;
  if (!other.is_there()) SKIP(no_python);
  temporary_folder place;
  posix_folder folder{place.path()};
  const auto opens = [&](const std::string& name) {
    return other.read(place.path() + '/' + name) == listing_of(folder, name);
  };
  model_of_all_types all;
  all.fill();
  checkpoint::export_values(all.m, folder, "all.safetensors");
  CHECK(opens("all.safetensors"));
  const std::string said = text_of(place.path() + "/all.safetensors.txt");
  CHECK(std::count(said.begin(), said.end(), '\n') == 6);
  all.each(cm::access::read, [&](unsigned number, std::span<const std::byte> content) {
    CHECK(said.find(' ' + as_hex(bytes_of(content.size(), number)) + '\n') != said.npos);
  });

  trained_model trained;  // a master, a momentum and a state
  CHECK(checkpoint::save(trained.m, folder, {.file_size = 40_B}).files > 1);
  std::size_t shards = 0;
  for (const std::string& name : folder.names()) {
    if (!name.starts_with("generation-") || !name.ends_with(".safetensors")) continue;
    CHECK(opens(name));
    ++shards;
  }
  CHECK(shards > 1);

  // What no model has: a single number, and tensors without elements.
  const std::vector<stored_tensor> odd{{"none", cm::dtype::bfloat16, {0, 7}, 0, 0},
                                       {"one", cm::dtype::int64, {}, 0, 8},
                                       {"nothing", cm::dtype::uint8, {3, 0}, 8, 8}};
  std::ofstream{place.path() + "/odd.safetensors", std::ios::binary} << checkpoint::write_table(odd) << "12345678";
  CHECK(opens("odd.safetensors"));
  std::ofstream{place.path() + "/empty.safetensors", std::ios::binary} << checkpoint::write_table({});
  CHECK(opens("empty.safetensors"));
}

TEST_CASE("what Python's safetensors writes is opened and loaded byte for byte", "[checkpoint][.python]")
{
  const python other;
  if (!other.is_there()) SKIP(no_python);
  temporary_folder place;
  posix_folder folder{place.path()};
  model_of_all_types all;
  all.fill();
  const auto write = [&](const std::string& listing, const std::string& raw) {
    return other.write(place.path(), listing, raw);
  };
  // Each element type, a single number, and tensors without elements.
  std::string listing;
  std::string of_numpy;
  for (const cm::dtype type : {cm::dtype::float32, cm::dtype::bfloat16, cm::dtype::float16, cm::dtype::int32,
                               cm::dtype::int64, cm::dtype::uint8})
    for (const std::vector<std::uint64_t>& extents :
         {std::vector<std::uint64_t>{}, {5, 3}, {0, 4}, {2, 1, 2, 1, 2, 1, 2, 1, 2}}) {
      const stored_tensor it{"t" + std::to_string(100 + listing.size()), type, extents, 0, 0};
      const std::string line = line_of(
          it, bytes_of(checkpoint::size_of_tensor(type, extents).count(), static_cast<unsigned>(listing.size())));
      listing += line;
      if (type != cm::dtype::bfloat16) of_numpy += line;
    }
  REQUIRE(write(listing, "raw"));
  const auto sorted = [](const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in{text};
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  CHECK(sorted(listing_of(folder, "raw")) == sorted(listing));
  CHECK(sorted(listing_of(folder, "numpy")) == sorted(of_numpy));
  CHECK(sorted(listing).size() == 24);

  // A file of Python's as part of a generation fills a model.
  checkpoint::export_values(all.m, folder, "all.safetensors");
  const std::string name = "generation-000001-00000.safetensors";
  REQUIRE(write(listing_of(folder, "all.safetensors"), name));
  const std::string content = text_of(place.path() + '/' + name);
  const auto bytes = std::as_bytes(std::span{content});
  const std::uint64_t header = 8 + checkpoint::detail::header_text_size(bytes);
  checkpoint::block_sums sums{header};
  sums.add(bytes);
  const checkpoint::manifest whole{.generation = 1, .files = {{name, content.size(), header, sums.take()}}, .run = 1};
  std::ofstream{place.path() + "/generation-000001.manifest"} << checkpoint::write_manifest(whole);
  model_of_all_types again;
  CHECK(checkpoint::load(again.m, folder).number == 1);
  again.each(cm::access::read, [](unsigned number, std::span<const std::byte> got) {
    const std::string right = bytes_of(got.size(), number);
    CHECK(std::ranges::equal(got, std::as_bytes(std::span{right})));
  });
}

}  // namespace export_values_test
