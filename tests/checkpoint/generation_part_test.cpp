// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/generation_writer.hpp>

#include <support/catch.hpp>
#include <support/simulated_folder.hpp>
#include <support/stored_generation.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace generation_part_test {

using namespace chunkmem;
using checkpoint::generation_part;
using support::simulated_folder;
using support::stored_generation;

namespace {

void write_one(generation_part<simulated_folder>& part, std::string_view header, std::string_view content)
{
  part.begin_file(header.size());
  part.write(stored_generation::bytes_of(header));
  part.sync();
  part.write(stored_generation::bytes_of(content));
  part.end_file();
}

}  // namespace

TEST_CASE("files of a rank have numbers behind those of the ranks before it, and what a manifest says of them",
          "[checkpoint]")
{
  simulated_folder folder;
  generation_part<simulated_folder> part{folder, 3, 7};
  write_one(part, "12345678", "some");
  write_one(part, "abcdefgh", "");
  part.finish();
  part.keep();
  REQUIRE(part.files().size() == 2);
  CHECK(part.files()[0] == checkpoint::stored_file{"generation-000003-00007.safetensors",
                                                   12,
                                                   8,
                                                   {io::checksum_of(stored_generation::bytes_of("12345678")),
                                                    io::checksum_of(stored_generation::bytes_of("some"))}});
  CHECK(part.files()[1] ==
        checkpoint::stored_file{
            "generation-000003-00008.safetensors", 8, 8, {io::checksum_of(stored_generation::bytes_of("abcdefgh"))}});
  CHECK(part.size() == 20);
  CHECK(folder.content().at("generation-000003-00007.safetensors") == "12345678some");
}

TEST_CASE("files go with a part that is not kept, and stay with one that is", "[checkpoint]")
{
  for (const bool retained : {false, true}) {
    simulated_folder folder;
    {
      generation_part<simulated_folder> part{folder, 1};
      write_one(part, "12345678", "some");
      part.keep();
      part.keep(retained);
      part.begin_file(8);  // and one that is half done
    }
    CHECK(folder.content().size() == (retained ? 1 : 0));
  }
}

TEST_CASE("a part has an order, and takes nothing behind a failure or its end", "[checkpoint]")
{
  simulated_folder folder;
  generation_part<simulated_folder> part{folder, 1};
  CHECK_THROWS_AS(part.end_file(), usage_error);
  part.sync();  // nothing is open
  write_one(part, "12345678", "");
  part.begin_file(8);
  CHECK_THROWS_AS(part.finish(), usage_error);
  folder.set_faults({.at = 0});
  CHECK_THROWS_AS(part.sync(), io_error);
  CHECK_THROWS_AS(part.sync(), usage_error);
  CHECK_THROWS_AS(part.end_file(), usage_error);
  folder.set_faults({});
  generation_part<simulated_folder> other{folder, 2};
  other.finish();
  CHECK_THROWS_AS(other.begin_file(8), usage_error);
  CHECK_THROWS_AS((generation_part<simulated_folder>{folder, 0}), usage_error);
}

}  // namespace generation_part_test
