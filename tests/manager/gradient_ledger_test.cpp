#include <chunkmem/manager/gradient_ledger.hpp>

#include <chunkmem/core/error.hpp>
#include <support/catch.hpp>

namespace gradient_ledger_test {

using namespace chunkmem;

TEST_CASE("a finished gradient refuses more and keeps its norms until it is forgotten", "[manager]")
{
  gradient_ledger it;
  it.reset(3);
  gradient_measure measure;
  measure.squares = 25.0;
  it.expect_open(1);
  it.finish(1, measure);
  it.finish(2);
  CHECK_THROWS_AS(it.expect_open(1), usage_error);
  CHECK_THROWS_AS(it.expect_open(2), usage_error);
  it.expect_open(0);
  REQUIRE(it.measure_of(1) != nullptr);
  CHECK(it.measure_of(1)->squares == 25.0);
  CHECK((it.measure_of(0) == nullptr && it.measure_of(2) == nullptr));
  it.forget(1);
  it.expect_open(1);
  CHECK(it.measure_of(1) == nullptr);
}

TEST_CASE("gradients neither come nor go while an update is half done, and weights are unfinished while a load is", "[manager]")
{
  gradient_ledger it;
  it.reset(1);
  it.begin_update();
  CHECK_THROWS_AS(it.expect_open(0), usage_error);
  CHECK_THROWS_AS(it.expect_no_update("this"), usage_error);
  it.expect_no_load("this");
  it.begin_rehearsal();
  it.expect_open(0);
  it.end_rehearsal();
  CHECK_THROWS_AS(it.expect_no_update("this"), usage_error);
  CHECK(it.forgotten() == 0);
  it.begin_load();
  CHECK(it.forgotten() == 1);
  it.expect_no_update("this");
  CHECK_THROWS_AS(it.expect_no_load("this"), usage_error);
  it.end_load();
  it.expect_no_load("this");
  it.begin_update();
  it.end_update();
  it.expect_open(0);
  it.forget_step();
  CHECK(it.forgotten() == 2);
}

TEST_CASE("a rehearsal leaves no trace in the ledger of gradients", "[manager]")
{
  gradient_ledger it;
  it.reset(2);
  it.finish(0, {});
  it.begin_rehearsal();
  it.expect_open(0);
  it.finish(1);
  CHECK_THROWS_AS(it.expect_open(1), usage_error);
  it.end_rehearsal();
  it.expect_open(1);
  CHECK(it.measure_of(0) != nullptr);
}

TEST_CASE("a gradient that is opened again is neither done nor measured, and completed last", "[manager]")
{
  gradient_ledger it;
  it.reset(3);
  it.note_opened(2);
  it.note_opened(0);
  CHECK(it.completed(1) == 0);
  CHECK((it.completed(2) > 0 && it.completed(0) > it.completed(2)));
  gradient_measure measure;
  measure.squares = 9.0;
  it.keep_measure(2, measure);
  it.expect_open(2);  // measured, but nobody said that it is done
  REQUIRE(it.measure_of(2) != nullptr);
  CHECK(it.measure_of(2)->squares == 9.0);
  it.finish(2);
  CHECK(it.completed(2) > it.completed(0));
  CHECK(it.measure_of(2) != nullptr);
  it.note_opened(2);
  it.expect_open(2);
  CHECK(it.measure_of(2) == nullptr);
  it.begin_rehearsal();
  it.note_opened(1);
  CHECK(it.opened() == 4);
  it.end_rehearsal();
  CHECK(it.opened() == 3);
  it.forget(2);
  CHECK(it.completed(2) == 0);
}

}  // namespace gradient_ledger_test
