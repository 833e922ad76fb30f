// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/role.hpp>

#include <support/catch.hpp>

#include <set>
#include <string>

namespace role_test {

using namespace chunkmem;

TEST_CASE("each role has a name of its own", "[tensor]")
{
  std::set<std::string> names;
  for (std::size_t part = 0; part < role_count; ++part) names.emplace(name_of(static_cast<role>(part)));
  CHECK(names == std::set<std::string>{"activation", "buffer", "frozen", "gathered", "gradient", "optimizer_state",
                                       "parameter"});
  CHECK(name_of(role::parameter) == "parameter");
  CHECK(name_of(role::activation) == "activation");
  CHECK(name_of(role::frozen) == "frozen");
}

}  // namespace role_test
