// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/full_checks.hpp>

#include <support/catch.hpp>

#include <array>
#include <span>

namespace gradient_watch_test {

using chunkmem::dtype;
using chunkmem::checks::gradient_watch;

TEST_CASE("a gradient is unwritten from its first opening until every element is written", "[checks]")
{
  gradient_watch it;
  it.reset(2);
  std::array<float, 4> values{};
  const auto content = std::as_writable_bytes(std::span{values});
  CHECK(it.unwritten(1, content, dtype::float32).elements == 0);
  it.opened(1, content, dtype::float32, true, true);
  CHECK(it.unwritten(1, content, dtype::float32).elements == 4);
  values[0] = values[3] = 0;
  CHECK(it.unwritten(1, content, dtype::float32).elements == 2);
  CHECK(it.unwritten(1, content, dtype::float32).first == 1);
  values[1] = values[2] = 1;
  CHECK(it.unwritten(1, content, dtype::float32).elements == 0);
  it.opened(1, content, dtype::float32, false, true);
  CHECK(values[1] == 1);
}

TEST_CASE("beta is to be read at each opening that has one", "[checks]")
{
  gradient_watch it;
  it.reset(2);
  CHECK(it.was_asked(0));
  it.opened(0, {}, dtype::float32, true, true);
  CHECK_FALSE(it.was_asked(0));
  CHECK(it.was_asked(1));
  it.asked(0);
  CHECK(it.was_asked(0));
  it.opened(0, {}, dtype::float32, false, true);
  CHECK_FALSE(it.was_asked(0));
  it.opened(0, {}, dtype::float32, false, false);
  CHECK(it.was_asked(0));
  it.opened(0, {}, dtype::float32, false, true);
  it.forget(0);
  CHECK(it.was_asked(0));
}

TEST_CASE("a tensor may lack a gradient where it was said so", "[checks]")
{
  gradient_watch it;
  it.reset(2);
  CHECK_FALSE(it.may_lack(7));
  it.allow_none(7);
  it.allow_none(7);
  CHECK(it.may_lack(7));
  it.reset(2);
  CHECK(it.may_lack(7));
}

}  // namespace gradient_watch_test
