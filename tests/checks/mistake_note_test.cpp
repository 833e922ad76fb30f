// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/full_checks.hpp>

#include <support/catch.hpp>

#include <string>

namespace mistake_note_test {

using namespace chunkmem;

TEST_CASE("the first mistake is thrown once, with the count of the others", "[checks]")
{
  checks::mistake_note it;
  CHECK_NOTHROW(it.raise());
  it.add(error_text{} << "chunkmem: first");
  it.add(error_text{} << "chunkmem: second");
  it.add(error_text{} << "chunkmem: third");
  CHECK(it.count() == 3);
  try {
    it.raise();
    FAIL("nothing was thrown");
  } catch (const usage_error& error) {
    CHECK(std::string{error.what()} == "chunkmem: first [and 2 more that were found since]");
  }
  CHECK(it.count() == 0);
  CHECK_NOTHROW(it.raise());
}

}  // namespace mistake_note_test
