// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/tensor.hpp>

#include <support/catch.hpp>

#include <set>
#include <string>

namespace names_test {

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

static_assert(name_of(access::read) == "read" && name_of(access::read_write) == "read_write" &&
              name_of(access::write) == "write");
static_assert(sizeof(chunkmem::access) == 1 && sizeof(memory_location) == 1 && sizeof(pass) == 1);

TEST_CASE("reading alone does not write", "[tensor]")
{
  CHECK_FALSE(writes(access::read));
  CHECK(writes(access::read_write));
  CHECK(writes(access::write));
}

TEST_CASE("a message calls a tensor by its name, or by its number where it has none", "[tensor]")
{
  error_text named, numbered;
  named << tensor_label{tensor_id{3}, "blocks.0.query", "gradient"};
  numbered << tensor_label{tensor_id{3}, {}, "value"};
  CHECK(named.view() == "tensor 'blocks.0.query' (gradient)");
  CHECK(numbered.view() == "tensor 3 (value)");
}

}  // namespace names_test
