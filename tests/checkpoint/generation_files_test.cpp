// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/generation_files.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/simulated_folder.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace block_sums_test {

using namespace chunkmem;
using namespace chunkmem::checkpoint;

namespace {

std::vector<std::byte> random_bytes(std::size_t size)
{
  support::dice dice{size};
  std::vector<std::byte> made(size);
  for (std::size_t index = 0; index < size; index += 1 + dice.below(300))
    made[index] = static_cast<std::byte>(dice.below(256));
  return made;
}

/// One block after the other, as the definition says it.
std::vector<std::uint64_t> plain_sums(std::span<const std::byte> content, std::size_t header)
{
  std::vector<std::uint64_t> sums{io::checksum_of(content.first(header))};
  for (content = content.subspan(header); !content.empty();
       content = content.subspan(std::min<std::size_t>(content.size(), sum_block)))
    sums.push_back(io::checksum_of(content.first(std::min<std::size_t>(content.size(), sum_block))));
  return sums;
}

}  // namespace

TEST_CASE("a file has a checksum for its header and one for each block behind it, in whatever pieces it is written",
          "[checkpoint]")
{
  for (const std::size_t header : {std::size_t{0}, std::size_t{8}, std::size_t{1000}})
    for (const std::size_t behind : {std::size_t{0}, std::size_t{1}, std::size_t{sum_block} - 1, std::size_t{sum_block},
                                     2 * std::size_t{sum_block} + 1}) {
      INFO(header << " B of header, " << behind << " behind it");
      const auto content = random_bytes(header + behind);
      const auto right = plain_sums(content, header);
      CHECK(right.size() == blocks_in(content.size(), header));
      support::dice dice{behind};
      for (int turn = 0; turn < 3; ++turn) {
        block_sums sums{header};
        for (std::span<const std::byte> left = content; !left.empty();) {
          const std::size_t size = turn == 0
                                       ? left.size()
                                       : std::min<std::size_t>(left.size(), turn == 1 ? 1 + dice.below(100'000)
                                                                                      : 8 + dice.below(3) * sum_block);
          sums.add(left.first(size));
          left = left.subspan(size);
        }
        CHECK(sums.take() == right);
      }
    }
}

TEST_CASE("blocks cover a file without a gap, and each byte knows its own", "[checkpoint]")
{
  for (const std::uint64_t header : {std::uint64_t{0}, std::uint64_t{9}})
    for (const std::uint64_t behind : {std::uint64_t{0}, std::uint64_t{5}, sum_block, 3 * sum_block + 7}) {
      const std::uint64_t size = header + behind;
      std::uint64_t next = 0;
      for (std::uint64_t block = 0; block < blocks_in(size, header); ++block) {
        const block_range where = block_at(block, size, header);
        CHECK(where.begin == next);
        CHECK((where.size() > 0 || header == 0));
        CHECK((block == 0 || where.size() <= sum_block));
        next = where.end;
        if (where.size() == 0) continue;
        CHECK(block_of(where.begin, header) == block);
        CHECK(block_of(where.end - 1, header) == block);
      }
      CHECK(next == size);
    }
}

}  // namespace block_sums_test

namespace generation_files_test {

using namespace chunkmem;
using checkpoint::file_label;
using checkpoint::generations_in;
using checkpoint::label_of;
using checkpoint::next_generation;
using checkpoint::remove_leftovers;
using checkpoint::remove_older;
using enum checkpoint::file_label::kind;

namespace {

/// A folder with these files, all empty.
support::simulated_folder folder_of(const std::vector<std::string>& names)
{
  support::disk_content files;
  for (const std::string& name : names) files[name];
  return support::simulated_folder{files};
}

std::set<std::string> names_in(const support::simulated_folder& folder)
{
  std::set<std::string> names;
  for (const std::string& name : folder.names()) names.insert(name);
  return names;
}

const std::vector<std::string> foreign{"notes.txt",
                                       "generation-1.manifest",
                                       "generation-000001-0.safetensors",
                                       "Generation-000001.manifest",
                                       "generation-000001.manifest.bak",
                                       "generation-000001.manifest.tmp.tmp",
                                       ".tmp",
                                       "generation-.manifest",
                                       "generation-0000001.manifest",
                                       "generation-000001-000001.safetensors",
                                       "generation-000001.safetensors",
                                       "generation-+00001.manifest",
                                       "generation--00001.manifest",
                                       "generation- 00001.manifest",
                                       "generation-18446744073709551616.manifest",
                                       "generation-18446744073709551615.manifest",
                                       "generation-1000000000000000.manifest",
                                       "generation-000000.manifest",
                                       "generation-000000-00000.safetensors",
                                       "generation-000000.manifest.tmp",
                                       "generation-export",
                                       "x generation-000001.manifest",
                                       "generation-000001-.safetensors",
                                       "generation-000001-00000.safetensors.",
                                       "generation-000001-00000.manifest",
                                       "generation-00000a.manifest"};

}  // namespace

TEST_CASE("a file's name says what it is for, and only names that a checkpoint gives do", "[checkpoint]")
{
  for (const std::uint64_t generation :
       {std::uint64_t{1}, std::uint64_t{999'999}, std::uint64_t{1'000'000}, std::uint64_t{999'999'999'999'999}}) {
    const std::string whole = checkpoint::detail::manifest_name(generation);
    CHECK(label_of(whole) == file_label{generation, manifest, false});
    CHECK(label_of(whole + ".tmp") == file_label{generation, manifest, true});
    for (const std::size_t file : {std::size_t{0}, std::size_t{42}, std::size_t{99'999}, std::size_t{100'000}}) {
      const std::string name = checkpoint::detail::tensors_name(generation, file);
      CHECK(label_of(name) == file_label{generation, tensors, false});
      CHECK(label_of(name + ".tmp") == file_label{generation, tensors, true});
    }
  }
  CHECK(checkpoint::detail::manifest_name(7) == "generation-000007.manifest");
  CHECK(checkpoint::detail::tensors_name(7, 3) == "generation-000007-00003.safetensors");
  for (const std::string& name : foreign) {
    INFO(name);
    CHECK_FALSE(label_of(name));
  }
  CHECK_FALSE(label_of(""));
}

TEST_CASE("any name is one of a checkpoint's in its one spelling, or foreign", "[checkpoint]")
{
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    support::dice dice{seed};
    std::string name = dice.one_in(2) ? checkpoint::detail::manifest_name(dice.below(2'000'000))
                                      : checkpoint::detail::tensors_name(dice.below(9), dice.below(9));
    if (dice.one_in(3)) name += ".tmp";
    for (std::uint32_t times = dice.below(3); times > 0; --times) {
      const std::size_t index = dice.below(static_cast<std::uint32_t>(name.size()));
      if (dice.one_in(2))
        name.erase(index, 1);
      else
        name.insert(index, 1, "0-1.mst"[dice.below(7)]);
    }
    const auto label = label_of(name);
    if (!label) continue;
    // Its number and kind give the name back: for files up to some index of their own.
    std::string again = label->what == manifest ? checkpoint::detail::manifest_name(label->generation)
                                                : name.substr(0, name.find(".safetensors")) + ".safetensors";
    if (label->is_temporary) again += ".tmp";
    if (again != name) FAIL("seed " << seed << ": " << name);
  }
}

TEST_CASE("generations are found by their manifests, newest first", "[checkpoint]")
{
  auto names = foreign;
  CHECK(generations_in(folder_of(names)).empty());
  CHECK(next_generation(folder_of(names)) == 1);
  names.insert(names.end(), {"generation-000009.manifest", "generation-000010.manifest", "generation-1000000.manifest",
                             "generation-000011-00000.safetensors", "generation-000012.manifest.tmp"});
  CHECK(generations_in(folder_of(names)) == std::vector<std::uint64_t>{1'000'000, 10, 9});
  CHECK(next_generation(folder_of(names)) == 1'000'001);
  // what is not whole has a number, too
  CHECK(next_generation(folder_of({"generation-000011-00000.safetensors"})) == 12);
  CHECK(next_generation(folder_of({"generation-000012.manifest.tmp"})) == 13);
}

TEST_CASE("behind the last number nothing is saved, and no number comes again", "[checkpoint]")
{
  CHECK(next_generation(folder_of({"generation-999999999999998.manifest"})) == 999'999'999'999'999);
  CHECK(next_generation(folder_of({"generation-18446744073709551615.manifest", "generation-000003.manifest"})) == 4);
  for (const char* const last :
       {"generation-999999999999999.manifest", "generation-999999999999999-00000.safetensors.tmp"})
    CHECK_THROWS_AS(next_generation(folder_of({last, "generation-000003.manifest"})), config_error);
}

TEST_CASE("leftovers of saves that never ended are removed, and nothing else", "[checkpoint]")
{
  const std::set<std::string> kept{"generation-000001.manifest", "generation-000001-00000.safetensors",
                                   "generation-000003.manifest", "generation-000003-00000.safetensors",
                                   "generation-000003-00001.safetensors"};
  const std::vector<std::string> left{"generation-000001-00000.safetensors.tmp", "generation-000002-00000.safetensors",
                                      "generation-000002.manifest.tmp",          "generation-000004-00000.safetensors",
                                      "generation-000004-00001.safetensors.tmp", "generation-export.tmp"};
  std::vector<std::string> names{kept.begin(), kept.end()};
  names.insert(names.end(), left.begin(), left.end());
  names.insert(names.end(), foreign.begin(), foreign.end());
  auto folder = folder_of(names);
  std::set<std::string> expected = kept;
  expected.insert(foreign.begin(), foreign.end());
  CHECK(remove_leftovers(folder) == left.size());
  CHECK(names_in(folder) == expected);
  CHECK(remove_leftovers(folder) == 0);
  CHECK(names_in(folder) == expected);
  CHECK(next_generation(folder) == 4);

  auto stubborn = folder_of(left);
  stubborn.set_faults({.is_read_only = true});
  CHECK(remove_leftovers(stubborn) == 0);
  stubborn.set_faults({.at = 3});  // two lists come before
  CHECK(remove_leftovers(stubborn) == left.size() - 1);
}

TEST_CASE("a number that was claimed is not given again, whatever becomes of its save", "[checkpoint]")
{
  auto folder = folder_of({"generation-000003.manifest", "generation-000003-00000.safetensors"});
  CHECK(checkpoint::claim_generation(folder) == 4);
  CHECK(next_generation(folder) == 5);
  CHECK(checkpoint::claim_generation(folder) == 5);
  CHECK(remove_leftovers(folder, 5) == 1);  // the first claim
  CHECK(names_in(folder) == std::set<std::string>{"generation-000003.manifest", "generation-000003-00000.safetensors",
                                                  "generation-000005.claim.tmp"});
  CHECK(next_generation(folder) == 6);
  CHECK(remove_leftovers(folder) == 1);
  for (const char* const foreign_claim :
       {"generation-000005.claim", "generation-5.claim.tmp", "generation-000000.claim.tmp"})
    CHECK_FALSE(label_of(foreign_claim).has_value());
}

TEST_CASE("all but the newest generations are removed, manifests first", "[checkpoint]")
{
  std::vector<std::string> names = foreign;
  for (std::uint64_t generation = 1; generation <= 4; ++generation) {
    names.push_back(checkpoint::detail::manifest_name(generation));
    names.push_back(checkpoint::detail::tensors_name(generation, 0));
  }
  for (std::size_t keep = 0; keep <= 6; ++keep) {
    auto folder = folder_of(names);
    std::set<std::string> expected{foreign.begin(), foreign.end()};
    for (std::uint64_t generation = 4; generation + keep > 4 && generation > 0; --generation) {
      expected.insert(checkpoint::detail::manifest_name(generation));
      expected.insert(checkpoint::detail::tensors_name(generation, 0));
    }
    remove_older(folder, keep);
    CHECK(names_in(folder) == expected);
    bool are_files_free = false;
    for (const support::disk_request& it : folder.requests()) {
      if (it.what == support::disk_operation::sync_folder) are_files_free = true;
      if (it.what == support::disk_operation::remove && it.name.ends_with(".safetensors")) CHECK(are_files_free);
    }
  }
}

TEST_CASE("a generation whose manifest cannot be removed keeps its files", "[checkpoint]")
{
  std::vector<std::string> names;
  for (std::uint64_t generation = 1; generation <= 3; ++generation) {
    names.push_back(checkpoint::detail::manifest_name(generation));
    names.push_back(checkpoint::detail::tensors_name(generation, 0));
  }
  for (std::uint64_t index = 0; index < 7; ++index)
    for (const bool retained : {false, true}) {
      auto folder = folder_of(names);
      folder.set_faults({.at = index, .retained = retained});
      try {
        remove_older(folder, 1);
      } catch (const io_error&) {  // a list or a sync
      }
      folder.set_faults({});
      INFO("operation " << index << " fails" << (retained ? ", and all after it" : ""));
      const std::set<std::string> found = names_in(folder);
      for (std::uint64_t generation = 1; generation <= 3; ++generation)
        if (found.contains(checkpoint::detail::manifest_name(generation)))
          CHECK(found.contains(checkpoint::detail::tensors_name(generation, 0)));
      CHECK(found.contains(checkpoint::detail::manifest_name(3)));
    }
}

}  // namespace generation_files_test
