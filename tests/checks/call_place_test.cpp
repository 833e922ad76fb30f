// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/call_place.hpp>

#include <support/catch.hpp>

#include <string>

namespace call_place_test {

using chunkmem::checks::call_place;

namespace {

unsigned line_of_call(call_place from = call_place{})
{
  return from.line;
}

}  // namespace

TEST_CASE("a defaulted parameter is the place of the call, without folders", "[checks]")
{
  CHECK(line_of_call() == __LINE__);
  chunkmem::error_text text;
  text << call_place{"a/b/trainer.cpp", 12} << " and " << call_place{"plain.cpp", 3};
  CHECK(std::string{text.view()} == "trainer.cpp:12 and plain.cpp:3");
}

}  // namespace call_place_test
