// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/gradient_store.hpp>

#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>

namespace change_watch_test {

using namespace chunkmem;

namespace {

void count(void* context, chunk_id) noexcept
{
  ++*static_cast<int*>(context);
}

}  // namespace

TEST_CASE("who watches is told before each change, until the watch ends", "[manager]")
{
  change_watch watch;
  watch.tell(chunk_id{3});  // nobody is there
  int told = 0;
  watch.begin(count, &told);
  watch.tell(chunk_id{3});
  watch.tell(chunk_id::none);
  CHECK(told == 2);
  watch.end(&told);
  watch.tell(chunk_id{3});
  CHECK(told == 2);
}

TEST_CASE("who watches hears which chunk changes", "[manager]")
{
  change_watch watch;
  chunk_id heard{0};
  watch.begin([](void* context, chunk_id chunk) noexcept { *static_cast<chunk_id*>(context) = chunk; }, &heard);
  watch.tell(chunk_id{7});
  CHECK(heard == chunk_id{7});
  watch.tell(chunk_id::none);
  CHECK(heard == chunk_id::none);
}

TEST_CASE("one watches at a time, and nobody ends the watch of another", "[manager]")
{
  change_watch watch;
  int first = 0, second = 0;
  watch.begin(count, &first);
  CHECK_THROWS_AS(watch.begin(count, &second), usage_error);
  watch.end(&second);
  watch.end(nullptr);
  watch.tell(chunk_id{1});
  CHECK(first == 1);
  CHECK(second == 0);
  watch.end(&first);
  watch.begin(count, &second);
  watch.end(&first);
  watch.tell(chunk_id{1});
  CHECK(second == 1);
}

}  // namespace change_watch_test
