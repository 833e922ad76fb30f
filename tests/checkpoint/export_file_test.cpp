// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/export_values.hpp>

#include <support/catch.hpp>
#include <support/simulated_folder.hpp>
#include <support/stored_generation.hpp>

#include <cstdint>
#include <string>

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
