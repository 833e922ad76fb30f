// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/io/file_folder.hpp>

#include <conformance/file_folder.hpp>
#include <support/catch.hpp>
#include <support/simulated_folder.hpp>

#include <cerrno>
#include <cstdint>

namespace whole_file_test {

using namespace chunkmem;
using conformance::detail::as_content;
using conformance::detail::errno_of;
using support::disk_content;
using support::disk_operation;
using support::simulated_folder;

namespace {

void replace(simulated_folder& folder)
{
  io::whole_file<simulated_folder> file{folder, "w.new"};
  file.write(as_content("1"));
  file.write(as_content("23"));
  file.end("w");
}

}  // namespace

TEST_CASE("a file has its name when it was synced and closed, and what had the name is replaced", "[io]")
{
  simulated_folder folder{disk_content{{"w", "older"}}};
  replace(folder);
  CHECK(folder.content() == disk_content{{"w", "123"}});
  std::vector<disk_operation> order;
  for (const support::disk_request& it : folder.requests()) order.push_back(it.what);
  using enum disk_operation;
  CHECK(order == std::vector{create, write, write, sync, close, rename});
}

TEST_CASE("a file that does not become whole is gone, and what has its names stays", "[io]")
{
  for (std::uint64_t index = 0; index < 6; ++index) {
    INFO("operation " << index);
    simulated_folder folder{disk_content{{"w", "older"}}};
    folder.set_faults({.at = index, .number = EIO});
    CHECK(errno_of([&] { replace(folder); }) == EIO);
    CHECK(folder.content() == disk_content{{"w", "older"}});
  }
  simulated_folder folder{disk_content{{"w", "older"}, {"w.new", "of another"}}};
  CHECK(errno_of([&] { replace(folder); }) == EEXIST);
  CHECK(folder.content() == disk_content{{"w", "older"}, {"w.new", "of another"}});
  simulated_folder early;
  {
    io::whole_file<simulated_folder> file{early, "w.new"};
  }
  CHECK(early.content().empty());
}

}  // namespace whole_file_test
