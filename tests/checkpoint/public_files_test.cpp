// SPDX-License-Identifier: Apache-2.0
// Published files of weights, read and written.
#include <chunkmem/checkpoint/import_values.hpp>

#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>
#include "exchange.hpp"
#include "small_model.hpp"

namespace public_files_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;

namespace {

void add(cm::manager<arena>& m, const checkpoint::stored_tensor& it)
{
  const auto declare = [&]<class Element>(Element) {
    m.name(m.add<Element>(cm::shape{std::span{it.extents}}, cm::role::buffer), it.name);
  };
  switch (it.type) {
    case cm::dtype::float32: return declare(float{});
    case cm::dtype::bfloat16: return declare(cm::bf16{});
    case cm::dtype::float16: return declare(cm::fp16{});
    case cm::dtype::int32: return declare(std::int32_t{});
    case cm::dtype::int64: return declare(std::int64_t{});
    case cm::dtype::uint8: return declare(std::uint8_t{});
  }
}

/// A manager with the tensors of a file, on a device for the largest of them.
struct model_of_file {
  explicit model_of_file(const std::vector<checkpoint::stored_tensor>& tensors)
      : memory{{.device_capacity = capacity(tensors, true), .host_capacity = capacity(tensors, false)}}
  {
    for (const checkpoint::stored_tensor& it : tensors)
      if (it.foreign == nullptr) add(m, it);
  }
  [[nodiscard]] static cm::bytes capacity(const std::vector<checkpoint::stored_tensor>& tensors, bool is_device)
  {
    std::uint64_t most = 0, all = 0;
    for (const checkpoint::stored_tensor& it : tensors) {
      most = std::max<std::uint64_t>(most, it.size());
      all += it.size() + 2 * frame.count();
    }
    return cm::align_up(cm::bytes{is_device ? most : all}, frame) + 2 * frame;
  }
  static constexpr cm::bytes frame = 64_KiB;
  arena memory;
  cm::manager<arena> m{memory, {.chunk_bytes = frame}};
};

}  // namespace

TEST_CASE("safetensors files of published packages go in and out with the same bytes", "[checkpoint][.python]")
{
  const char* const interpreter = std::getenv("CHUNKMEM_PYTHON");
  const std::string script = (std::filesystem::path{__FILE__}.parent_path() / "public_files.py").string();
  const temporary_folder place;
  cm::io::posix_folder folder{place.path()};
  const std::string list = place.path() + "/list";
  if (interpreter != nullptr)
    REQUIRE(std::system((std::string{interpreter} + " '" + script + "' '" + list + "'").c_str()) == 0);
  std::ifstream paths{list};
  int files = 0;
  for (std::string path; std::getline(paths, path); ++files) {
    INFO(path);
    std::filesystem::copy_file(path, place.path() + "/in", std::filesystem::copy_options::overwrite_existing);
    const checkpoint::safetensors_file file{folder.open("in"), "in"};
    const auto known = std::ranges::count_if(file.tensors(), [](const auto& it) { return it.foreign == nullptr; });
    const bool is_whole = std::cmp_equal(known, file.tensors().size());
    model_of_file first{file.tensors()}, second{file.tensors()};
    checkpoint::import_values(first.m, folder, "in", {.takes_part = !is_whole});
    checkpoint::export_values(first.m, folder, "out");
    CHECK(std::cmp_equal(checkpoint::safetensors_file{folder.open("out"), "out"}.tensors().size(), known));
    if (is_whole) CHECK(listing_of(folder, "out") == listing_of(folder, "in"));
    (void)checkpoint::save(first.m, folder);
    (void)checkpoint::load(second.m, folder);
    checkpoint::export_values(second.m, folder, "again");
    CHECK(text_of(place.path() + "/again") == text_of(place.path() + "/out"));
    (void)checkpoint::finish_save(first.m);
    for (const std::string& name : folder.names())
      if (name.starts_with("generation-")) std::filesystem::remove(place.path() + '/' + name);
  }
  if (files == 0) SKIP("no installed package of Python has a .safetensors file (pip install --no-deps silero-vad)");
}

}  // namespace public_files_test
