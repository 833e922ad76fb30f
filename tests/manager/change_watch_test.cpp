// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/change_watch.hpp>

#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>

namespace change_watch_test {

using namespace chunkmem;

namespace {

void count(void* context) noexcept
{
  ++*static_cast<int*>(context);
}

}  // namespace

TEST_CASE("who watches is told once, before the first change", "[manager]")
{
  change_watch watch;
  watch.tell();  // nobody is there
  int told = 0;
  watch.begin(count, &told);
  watch.tell();
  watch.tell();
  CHECK(told == 1);
  watch.begin(count, &told);
  watch.end(&told);
  watch.tell();
  CHECK(told == 1);
}

TEST_CASE("one watches at a time, and nobody ends the watch of another", "[manager]")
{
  change_watch watch;
  int first = 0, second = 0;
  watch.begin(count, &first);
  CHECK_THROWS_AS(watch.begin(count, &second), usage_error);
  watch.end(&second);
  watch.end(nullptr);
  watch.tell();
  CHECK(first == 1);
  CHECK(second == 0);
  watch.end(&first);  // it was told already
  watch.begin(count, &second);
  watch.end(&first);
  watch.tell();
  CHECK(second == 1);
}

}  // namespace change_watch_test
