// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/generation_reader.hpp>

#include <support/catch.hpp>
#include <support/simulated_folder.hpp>
#include <support/stored_generation.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace whole_generation_test {

using namespace chunkmem;
using support::simulated_folder;
using support::stored_generation;

TEST_CASE("manifest and headers say what is where, without a byte of tensors", "[checkpoint]")
{
  const stored_generation content{3};
  simulated_folder folder;
  content.write(folder);
  std::vector<simulated_folder::reader> open;
  const auto found = checkpoint::read_generation(folder, 1, {}, &open);
  CHECK(open.size() == 2);
  CHECK(content.is_in(folder, found));
  for (std::size_t file = 0; file < 2; ++file) CHECK(found.files[file].payload == found.content.files[file].header);

  support::disk_content changed = folder.content();
  changed["generation-000001-00001.safetensors"].back() ^= 1;  // of a tensor
  CHECK(content.lists() == checkpoint::read_generation(simulated_folder{changed}, 1).content.lists);
  changed["generation-000001-00001.safetensors"][20] ^= 1;  // of a header
  CHECK_THROWS_AS(checkpoint::read_generation(simulated_folder{changed}, 1), corrupt_data);
}

TEST_CASE("each block of a file is proven by itself", "[checkpoint]")
{
  const stored_generation content{3};
  simulated_folder folder;
  content.write(folder);
  const checkpoint::stored_file it = checkpoint::read_generation(folder, 1).content.files[0];
  std::vector<std::byte> room;
  auto file = folder.open(it.name);
  const auto block = checkpoint::detail::read_block(file, it, 1, room);
  const std::string whole = folder.content().at(it.name);
  CHECK(std::string_view{reinterpret_cast<const char*>(block.data()), block.size()} ==
        std::string_view{whole}.substr(it.header));
  support::disk_content changed = folder.content();
  changed[it.name].back() ^= 1;
  const simulated_folder other{changed};
  auto damaged = other.open(it.name);
  CHECK_NOTHROW(checkpoint::detail::read_block(damaged, it, 0, room));
  CHECK_THROWS_AS(checkpoint::detail::read_block(damaged, it, 1, room), corrupt_data);
}

}  // namespace whole_generation_test
