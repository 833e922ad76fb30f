// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/own_process.hpp>

#include <support/catch.hpp>
#include <support/forked_child.hpp>

#include <string>

namespace own_process_test {

using namespace chunkmem;

TEST_CASE("an object knows the process that made it from a forked child", "[core]")
{
  const own_process here;
  CHECK(here.is_here());
  CHECK_NOTHROW(here.expect_here("a thing"));
  CHECK(support::result_in_child([&] {
          const own_process child;
          return here.is_here() || !child.is_here() ? 1 : 0;
        }) == 0);
}

TEST_CASE("what is used in a forked child is told with both processes", "[core]")
{
  const own_process here;
  const std::string parent = std::to_string(::getpid());
  CHECK(support::result_in_child([&] {
          try {
            here.expect_here("a thing");
          } catch (const usage_error& failed) {
            const std::string text = failed.what();
            const bool tells = text.find("a thing was used in a forked child: made in process " + parent +
                                         ", used in process " + std::to_string(::getpid())) != text.npos;
            return tells ? 0 : 1;
          }
          return 2;
        }) == 0);
}

}  // namespace own_process_test
