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

}  // namespace gradient_ledger_test
