// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/export_values.hpp>

#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/import_values.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>

#include <support/catch.hpp>
#include <support/memory_folder.hpp>
#include <support/simulated_folder.hpp>
#include <support/stored_generation.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <vector>
#include "exchange.hpp"
#include "small_model.hpp"

namespace export_file_test {

using namespace chunkmem;
using support::simulated_folder;

namespace {

void export_as(simulated_folder& folder, std::string_view content)
{
  checkpoint::detail::export_file(folder, "model", {{"w", dtype::uint8, {content.size()}, 0, content.size()}},
                                  [&](auto& file) { file.write(support::stored_generation::bytes_of(content)); });
}

}  // namespace

TEST_CASE("an exported file replaces another when it is whole, and leaves nothing else", "[checkpoint]")
{
  simulated_folder folder;
  export_as(folder, "old");
  const std::string before = folder.content().at("model");
  CHECK(before.ends_with("old"));
  folder.set_faults({});
  export_as(folder, "newer");
  const std::string after = folder.content().at("model");
  const std::uint64_t operations = folder.requests().size();
  for (std::uint64_t index = 0; index < operations; ++index) {
    simulated_folder again;
    export_as(again, "old");
    again.set_faults({.at = index});
    try {
      export_as(again, "newer");
    } catch (const io_error&) {
    }
    INFO("operation " << index);
    CHECK((again.content().at("model") == before || again.content().at("model") == after));
    CHECK(again.content().size() == 1);
  }
}

TEST_CASE("an export has no name of a checkpoint", "[checkpoint]")
{
  for (const char* const wrong : {"", "a/b", "generation-000001.manifest", "generation-x"})
    CHECK_THROWS_AS(checkpoint::detail::expect_export_name(wrong), usage_error);
  CHECK_NOTHROW(checkpoint::detail::expect_export_name("model.safetensors"));
}

}  // namespace export_file_test

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
      const auto pin = m.acquire_bytes(it, mode, cm::memory_location::device);
      using byte = cm::pinned_as<std::byte, Access>;
      use(number++, std::span{reinterpret_cast<byte*>(pin.span().data()), pin.size()});
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
