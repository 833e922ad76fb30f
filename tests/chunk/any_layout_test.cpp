// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/layouts.hpp>

#include <chunkmem/chunk/size_class_layout.hpp>
#include <conformance/chunk_layout.hpp>
#include <conformance/reusing_layout.hpp>
#include <support/catch.hpp>
#include <support/own_policies.hpp>

#include <vector>

namespace any_layout_test {

using namespace chunkmem;

namespace {

using any_of_ours = any_layout<append_layout, best_fit_layout, size_class_layout>;
using any_that_reuses = any_layout<best_fit_layout, append_layout>;
static_assert(arranging_layout<any_of_ours> && searchable_layout<any_of_ours> && !reusing_layout<any_of_ours>);
static_assert(reusing_layout<any_that_reuses>);
static_assert(!searchable_layout<any_layout<append_layout, support::one_each_layout>>);

}  // namespace

TEST_CASE("a layout chosen by name keeps the laws", "[chunk]")
{
  for (const std::string_view name : any_of_ours::names) {
    INFO(std::string{name});
    conformance::chunk_layout_laws(any_of_ours{name});
    conformance::searchable_layout_laws(any_of_ours{name});
  }
  for (const std::string_view name : any_that_reuses::names)
    conformance::reusing_layout_laws(1'000, any_that_reuses{name});
}

TEST_CASE("a layout chosen by name places as that layout does", "[chunk]")
{
  const std::vector<bytes> sizes{bytes{512}, bytes{512}, bytes{1'024}, bytes{1'024}};
  std::vector<chunk_place> places(4);
  std::vector<chunk_place> expected(4);
  any_of_ours any{"size_class_layout"};
  any.reset(bytes{1'536});
  any.arrange(sizes, places);
  size_class_layout plain;
  plain.reset(bytes{1'536});
  plain.arrange(sizes, expected);
  CHECK(places == expected);
  any_of_ours appending;
  CHECK(appending.chosen() == "append_layout");
  appending.reset(bytes{1'536});
  appending.arrange(sizes, places);
  CHECK(places == std::vector<chunk_place>{{0, 0, 1}, {0, 512, 1}, {1, 0, 1}, {2, 0, 1}});
  CHECK_THROWS_AS(any_of_ours{"worst_fit_layout"}, config_error);
}

}  // namespace any_layout_test
