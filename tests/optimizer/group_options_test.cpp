// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/optimizer_kernel.hpp>

#include <support/catch.hpp>

namespace group_options_test {

namespace cm = chunkmem;

TEST_CASE("a group has its own options where some were set, else the common ones", "[optimizer]")
{
  cm::optimizer::detail::group_options<int> options{7};
  CHECK(options.common() == 7);
  CHECK(options.of(cm::group_id{3}) == 7);
  options.set(cm::group_id{3}, 8);
  options.set(cm::group_id{0}, 9);
  options.set(cm::group_id{3}, 10);
  CHECK(options.of(cm::group_id{3}) == 10);
  CHECK(options.of(cm::group_id{0}) == 9);
  CHECK(options.of(cm::group_id{1}) == 7);
  CHECK(options.common() == 7);
}

}  // namespace group_options_test
