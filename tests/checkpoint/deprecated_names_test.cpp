// SPDX-License-Identifier: Apache-2.0
// Names before version 0.2: each still compiles, with a warning that names the new word.
#include <chunkmem/checkpoint/save_async.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/placement/placements.hpp>

#include <support/catch.hpp>

#include <type_traits>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace deprecated_names_test {

using namespace chunkmem;

TEST_CASE("the names of version 0.1 are those of version 0.2", "[checkpoint]")
{
  STATIC_REQUIRE(std::is_same_v<placement::host_first, placement::optimizer_on_host>);
  STATIC_REQUIRE(std::is_same_v<pipeline::no_flush, pipeline::pipedream_2bw>);
  STATIC_REQUIRE(requires(checkpoint::pending_save& saving) { saving.let_go(); });
}

}  // namespace deprecated_names_test
