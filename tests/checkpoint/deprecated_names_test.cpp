// SPDX-License-Identifier: Apache-2.0
// Names that docs/renamed.md calls deprecated: each compiles, with a warning that has the new name.
#include <chunkmem/checkpoint/save_async.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/placement/placements.hpp>

#include <support/catch.hpp>

#include <type_traits>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace deprecated_names_test {

using namespace chunkmem;

TEST_CASE("each deprecated name has the meaning of its new name", "[checkpoint]")
{
  STATIC_REQUIRE(std::is_same_v<placement::host_first, placement::optimizer_on_host>);
  STATIC_REQUIRE(std::is_same_v<pipeline::no_flush, pipeline::pipedream_2bw>);
  STATIC_REQUIRE(requires(checkpoint::pending_save& saving) { saving.let_go(); });
}

}  // namespace deprecated_names_test
