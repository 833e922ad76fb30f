// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/gradients.hpp>

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
  CHECK(it.is_open(slot_id{1}));
  it.finish(slot_id{1}, measure);
  it.finish(slot_id{2});
  CHECK_FALSE(it.is_open(slot_id{1}));
  CHECK_FALSE(it.is_open(slot_id{2}));
  CHECK(it.is_open(slot_id{0}));
  REQUIRE(it.measure_of(slot_id{1}) != nullptr);
  CHECK(it.measure_of(slot_id{1})->squares == 25.0);
  CHECK((it.measure_of(slot_id{0}) == nullptr && it.measure_of(slot_id{2}) == nullptr));
  it.forget(slot_id{1});
  CHECK(it.is_open(slot_id{1}));
  CHECK(it.measure_of(slot_id{1}) == nullptr);
}

TEST_CASE("a gradient that is done in one micro-batch is open in the others of its iteration alone", "[manager]")
{
  gradient_ledger it;
  it.reset(1);
  const slot_id weight{0};
  const auto moment = [](std::uint64_t iteration, std::uint64_t micro_batch) { return iteration << 16 | micro_batch; };
  it.finish_unmeasured(weight, moment(3, 2));
  CHECK_FALSE(it.is_open(weight, moment(3, 2)));
  CHECK(it.is_open(weight, moment(3, 1)));
  CHECK(it.is_open(weight, moment(3, 65'535)));
  CHECK_FALSE(it.is_open(weight, moment(4, 1)));
  CHECK_FALSE(it.is_open(weight, moment(2, 2)));
  CHECK(it.is_done_in_iteration(weight, moment(3, 1)));
  CHECK_FALSE(it.is_done_in_iteration(weight, moment(4, 2)));
  it.note_opened(weight);
  CHECK(it.is_open(weight, moment(3, 2)));
  CHECK_FALSE(it.is_done_in_iteration(weight, moment(3, 2)));
}

TEST_CASE("gradients neither come nor go while an update is half done, and weights are unfinished while a load is",
          "[manager]")
{
  gradient_ledger it;
  it.reset(1);
  it.begin_update();
  CHECK_THROWS_AS(it.expect_no_update("this"), usage_error);
  it.expect_no_load("this");
  it.begin_rehearsal();
  it.expect_no_update("this");
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
  it.expect_no_update("this");
  it.forget_step();
  CHECK(it.forgotten() == 2);
}

TEST_CASE("a rehearsal leaves no trace in the ledger of gradients", "[manager]")
{
  gradient_ledger it;
  it.reset(2);
  it.finish(slot_id{0}, {});
  it.begin_rehearsal();
  CHECK(it.is_open(slot_id{0}));
  it.finish(slot_id{1});
  CHECK_FALSE(it.is_open(slot_id{1}));
  it.end_rehearsal();
  CHECK(it.is_open(slot_id{1}));
  CHECK(it.measure_of(slot_id{0}) != nullptr);
}

TEST_CASE("a gradient that is opened again is neither done nor measured, and completed last", "[manager]")
{
  gradient_ledger it;
  it.reset(3);
  it.note_opened(slot_id{2});
  it.note_opened(slot_id{0});
  CHECK(it.completed(slot_id{1}) == 0);
  CHECK((it.completed(slot_id{2}) > 0 && it.completed(slot_id{0}) > it.completed(slot_id{2})));
  gradient_measure measure;
  measure.squares = 9.0;
  it.keep_measure(slot_id{2}, measure);
  CHECK(it.is_open(slot_id{2}));  // measured, but nobody said that it is done
  REQUIRE(it.measure_of(slot_id{2}) != nullptr);
  CHECK(it.measure_of(slot_id{2})->squares == 9.0);
  it.finish(slot_id{2});
  CHECK(it.completed(slot_id{2}) > it.completed(slot_id{0}));
  CHECK(it.measure_of(slot_id{2}) != nullptr);
  it.note_opened(slot_id{2});
  CHECK(it.is_open(slot_id{2}));
  CHECK(it.measure_of(slot_id{2}) == nullptr);
  it.begin_rehearsal();
  it.note_opened(slot_id{1});
  CHECK(it.opened() == 4);
  it.end_rehearsal();
  CHECK(it.opened() == 3);
  it.forget(slot_id{2});
  CHECK(it.completed(slot_id{2}) == 0);
}

TEST_CASE("what all gradients measure together is forgotten with each of them, with the step, and for a rehearsal",
          "[manager]")
{
  gradient_ledger it;
  it.reset(2);
  gradient_measure all;
  all.squares = 4.0;
  const auto is_forgotten_by = [&](auto change) {
    it.keep_measure_of_all(all);
    if (it.measure_of_all() == nullptr || it.measure_of_all()->squares != 4.0) return false;
    change();
    return it.measure_of_all() == nullptr;
  };
  CHECK(is_forgotten_by([&] { it.note_opened(slot_id{1}); }));
  CHECK(is_forgotten_by([&] { it.forget_measure_of_all(); }));
  CHECK(is_forgotten_by([&] { it.forget_gradients(); }));
  CHECK(is_forgotten_by([&] { it.forget_step(); }));
  CHECK(is_forgotten_by([&] { it.end_update(); }));
  CHECK(is_forgotten_by([&] { it.begin_load(); }));
  CHECK(is_forgotten_by([&] { it.begin_rehearsal(); }));
  gradient_measure rehearsed;
  rehearsed.squares = 9.0;
  it.keep_measure_of_all(rehearsed);
  it.end_rehearsal();
  REQUIRE(it.measure_of_all() != nullptr);
  CHECK(it.measure_of_all()->squares == 4.0);
  CHECK(!is_forgotten_by([&] { it.keep_measure(slot_id{0}, all); }));  // a part of what is known already
  CHECK(!is_forgotten_by([&] { it.forget(slot_id{1}); }));             // used up by an update that had waited
}

}  // namespace gradient_ledger_test
