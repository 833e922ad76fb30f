// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/gradients.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>
#include <support/count_allocations.hpp>

#include <initializer_list>
#include <vector>

namespace micro_batch_ledger_test {

using Catch::Matchers::ContainsSubstring;
using chunkmem::micro_batch_ledger;
using chunkmem::pass;

TEST_CASE("an iteration is complete when each of its micro-batches was named, in any order and as often as it is",
          "[manager]")
{
  for (const std::uint32_t count : {2U, 3U, 64U, 65U, 65535U}) {
    micro_batch_ledger it;
    it.reserve(count);
    it.begin(count);
    for (std::uint32_t index = count; index-- > 1;) {
      it.name(index, pass::backward);
      it.name(index, pass::backward);
    }
    CHECK_FALSE(it.is_complete());
    CHECK_THROWS_WITH(it.expect_complete(),
                      ContainsSubstring("an iteration of " + std::to_string(count) + " micro-batches ended after " +
                                        std::to_string(count - 1) + " of them"));
    it.name(0, pass::backward);
    CHECK(it.is_complete());
    it.expect_complete();
    it.begin(count);
    CHECK_FALSE(it.is_complete());
  }
}

TEST_CASE("moments tell iterations and their micro-batches apart", "[manager]")
{
  micro_batch_ledger it;
  CHECK(it.moment() == 1);
  CHECK_FALSE(it.expects_more());
  it.reserve(65'535);
  it.begin(65'535);
  const std::uint64_t first = it.moment();
  CHECK(first >> 16 != 0);
  it.name(65'534, pass::backward);
  CHECK(it.moment() == first + 65'534);
  CHECK(it.moment() >> 16 == first >> 16);
  CHECK(it.expects_more());
  CHECK_THROWS_WITH(it.expect_no_more(first),
                    ContainsSubstring("an optimizer step after 1 of the 65535 micro-batches"));
  it.expect_no_more(1);  // the gradients are of another iteration
  it.end();
  CHECK_FALSE(it.expects_more());
  it.expect_no_more(first);
  it.begin(2);
  it.expect_no_more(it.moment());  // before the first micro-batch
  it.begin(1);
  CHECK(it.moment() >> 16 == (first >> 16) + 2);
  CHECK_FALSE(it.expects_more());
}

TEST_CASE("the last micro-batch is the one that a backward pass names behind all others", "[manager]")
{
  micro_batch_ledger it;
  CHECK(it.is_last());  // outside an iteration
  it.reserve(3);
  it.begin(3);
  CHECK_FALSE(it.is_last());
  for (const std::uint32_t named : {2U, 0U, 1U}) it.name(named, pass::forward);
  CHECK_FALSE(it.is_last());
  for (const std::uint32_t named : {0U, 2U, 0U, 1U}) {
    it.name(named, pass::backward);
    CHECK(it.is_last() == (named == 1));
  }
  for (const std::uint32_t again : {2U, 0U, 1U}) {  // as where gradients of weights come behind those of inputs
    it.name(again, pass::backward);
    CHECK(it.is_last() == (again == 1));
  }
  it.name(0, pass::forward);  // of the next iteration
  CHECK_FALSE(it.is_last());
  it.end();
  CHECK(it.is_last());
  it.begin(1);
  CHECK(it.is_last());
  it.name(0, pass::forward);
  CHECK(it.is_last());
}

TEST_CASE("an iteration of one micro-batch need not name it", "[manager]")
{
  micro_batch_ledger it;
  CHECK(it.is_complete());
  it.reserve(1);
  it.begin(1);
  CHECK(it.is_complete());
  it.name(0, pass::backward);
  CHECK(it.is_complete());
}

TEST_CASE("what an iteration's end could not say is said once", "[manager]")
{
  micro_batch_ledger it;
  it.expect_told();
  it.reserve(4);
  it.begin(4);
  it.name(2, pass::backward);
  it.expect_told();
  it.keep();
  it.reserve(9);
  it.begin(9);  // the one after it
  CHECK_THROWS_WITH(it.expect_told(), ContainsSubstring("an iteration of 4 micro-batches ended after 1 of them"));
  it.expect_told();
}

}  // namespace micro_batch_ledger_test

namespace update_order_test {

namespace {

std::vector<std::uint32_t> numbers(const chunkmem::update_order& it)
{
  return {it.all().begin(), it.all().end()};
}

}  // namespace

TEST_CASE("parameters come as declared until an order is arranged, which stays until it is reset", "[manager]")
{
  chunkmem::update_order it;
  it.reset(5);
  CHECK(numbers(it) == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
  const auto before = support::allocations_so_far();
  const std::uint64_t keys[] = {7, 3, UINT64_MAX, 3, 0};
  it.arrange([&](std::uint32_t index) { return keys[index]; });
  if (support::counts_allocations) CHECK((support::allocations_so_far() - before).all() == 0);
  CHECK(numbers(it) == std::vector<std::uint32_t>{4, 1, 3, 0, 2});
  it.arrange([](std::uint32_t) { return std::uint64_t{1}; });
  CHECK(numbers(it) == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
  it.arrange([](std::uint32_t index) { return 9 - index; });
  CHECK(numbers(it) == std::vector<std::uint32_t>{4, 3, 2, 1, 0});
  it.reset();
  CHECK(numbers(it) == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
}

}  // namespace update_order_test

namespace model_gradients_test {

using namespace chunkmem;

TEST_CASE("a finished gradient refuses more and keeps its norms until it is forgotten", "[manager]")
{
  model_gradients it;
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
  model_gradients it;
  it.reset(1);
  const slot_id weight{0};
  micro_batch_ledger& named = it.micro_batches();
  const auto is_open_in = [&](std::uint32_t micro_batch) {
    named.name(micro_batch, pass::backward);
    return it.is_open(weight);
  };
  named.reserve(65'535);
  named.begin(65'535);
  named.name(1, pass::backward);
  it.finish(weight);
  CHECK_FALSE(is_open_in(1));
  CHECK(is_open_in(0));
  CHECK(is_open_in(65'534));
  CHECK(it.done(weight) != 0);
  named.begin(65'535);
  CHECK_FALSE(is_open_in(0));
  CHECK_FALSE(is_open_in(1));
  it.note_opened(weight);
  CHECK(is_open_in(1));
  CHECK(it.done(weight) == 0);
}

TEST_CASE("gradients neither come nor go while an update is half done, and weights are unfinished while a load is",
          "[manager]")
{
  model_gradients it;
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

TEST_CASE("a rehearsal leaves no trace in the gradients of a model", "[manager]")
{
  model_gradients it;
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
  model_gradients it;
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
  model_gradients it;
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

}  // namespace model_gradients_test

namespace gradient_places_test {

using namespace chunkmem;
using kind = entry_kind;

namespace {

constexpr std::uint32_t weight = 0, other = 1, single = 2;  // value slots: two of bf16, one of fp32
constexpr std::uint32_t gradients = 3;                      // the first gradient slot

registry three_weights()
{
  registry it;
  it.add({100}, dtype::bfloat16, role::parameter, group_id{0});
  it.add({100}, dtype::bfloat16, role::parameter, group_id{0});
  it.add({100}, dtype::float32, role::parameter, group_id{0});
  it.add_list(master_list);
  it.seal(append_layout{}, bytes{4096});
  return it;
}

struct use {
  std::uint32_t slot;
  entry_kind how;
  std::uint32_t held_for = 0;  ///< moments after the next one
};

/// A record of these accesses; each is released before the next one, or later.
access_record record_of(std::initializer_list<use> uses)
{
  access_record record;
  std::uint32_t now = 0;
  for (const use& it : uses) {
    record.make_room();
    record.append({it.slot, 0, 0, it.how, false, 0},
                  {0, it.how == kind::drop ? entry_detail::never : now + 1 + it.held_for, pass::none});
    ++now;
  }
  return record;
}

bool is_lent_after(std::initializer_list<use> uses, std::uint32_t which = weight)
{
  registry tensors = three_weights();
  gradient_places places;
  places.enable(3);
  places.learn(record_of(uses), tensors);
  places.settle(tensors);
  const slot& value = tensors[slot_id{which}];
  const slot& gradient = tensors[tensors.gradient_of(slot_id{which})];
  const bool together = value.chunk == gradient.chunk && value.offset == gradient.offset;
  CHECK(together == places.is_lent(slot_id{which}));
  CHECK(tensors.chunk_of_slot()[index_of(tensors.gradient_of(slot_id{which}))] == index_of(gradient.chunk));
  return together;
}

}  // namespace

TEST_CASE("a gradient takes the place of a weight that nobody reads before its update", "[manager]")
{
  CHECK(is_lent_after({{weight, kind::read}, {gradients + weight, kind::write}}));
  CHECK(is_lent_after({{weight, kind::read},
                       {gradients + weight, kind::write},
                       {gradients + weight, kind::read_write},
                       {gradients + weight, kind::read_on_host}}));
  CHECK(is_lent_after({{weight, kind::read},
                       {gradients + weight, kind::write},
                       {weight, kind::write_on_host},
                       {gradients + weight, kind::drop},
                       {weight, kind::read}}));
  CHECK(is_lent_after({{weight, kind::read},
                       {gradients + weight, kind::write},
                       {other, kind::read},
                       {UINT32_MAX, kind::lease_device}}));
}

TEST_CASE("a gradient stays apart from a weight that somebody wants", "[manager]")
{
  CHECK_FALSE(is_lent_after({{weight, kind::read}}));  // no gradient was seen
  CHECK_FALSE(is_lent_after({{weight, kind::read}, {gradients + weight, kind::write}, {weight, kind::read}}));
  CHECK_FALSE(is_lent_after({{weight, kind::read}, {gradients + weight, kind::write}, {weight, kind::read_on_host}}));
  CHECK_FALSE(
      is_lent_after({{weight, kind::read}, {gradients + weight, kind::write}, {weight, kind::read_write_on_host}}));
  CHECK_FALSE(is_lent_after({{weight, kind::read}, {gradients + weight, kind::write}, {weight, kind::drop}}));
  CHECK_FALSE(is_lent_after({{weight, kind::read, 1}, {gradients + weight, kind::write}}));  // another pin holds it
  CHECK_FALSE(is_lent_after({{single, kind::read}, {gradients + single, kind::write}}, single));  // no master
  CHECK_FALSE(is_lent_after({{weight, kind::read},
                             {gradients + weight, kind::write},
                             {weight, kind::write_on_host},
                             {gradients + weight, kind::write},
                             {weight, kind::read}}));
}

TEST_CASE("gradients move only while they have no bytes, and back where a weight is wanted after all", "[manager]")
{
  registry tensors = three_weights();
  gradient_places places;
  places.learn(record_of({{weight, kind::read}, {gradients + weight, kind::write}}), tensors);
  CHECK_FALSE(places.settle(tensors));  // not enabled
  places.enable(3);
  places.learn(record_of({{weight, kind::read}, {gradients + weight, kind::write}}), tensors);
  const slot own = tensors[slot_id{gradients + weight}];
  tensors[slot_id{gradients + weight}].state = tensor_state::hold;
  CHECK_FALSE(places.settle(tensors));
  CHECK(places.is_pending());
  tensors[slot_id{gradients + weight}].state = tensor_state::free;
  CHECK(places.settle(tensors));
  CHECK((places.is_lent(slot_id{weight}) && !places.is_lent(slot_id{other}) && !places.is_pending()));
  places.begin(1);
  places.note_consumed(slot_id{weight});
  places.begin(1);
  places.keep_apart(slot_id{weight});  // left over by the loop's last iteration
  CHECK_FALSE(places.is_pending());
  places.note_consumed(slot_id{weight});
  places.begin(0);
  places.keep_apart(slot_id{weight});  // another loop wants it
  CHECK(places.is_pending());
  tensors[slot_id{weight}].state = tensor_state::gradient;
  CHECK_FALSE(places.settle(tensors));
  tensors[slot_id{weight}].state = tensor_state::hold;
  CHECK(places.settle(tensors));
  CHECK_FALSE(places.is_lent(slot_id{weight}));
  CHECK((tensors[slot_id{gradients + weight}].chunk == own.chunk &&
         tensors[slot_id{gradients + weight}].offset == own.offset));
  places.learn(record_of({{weight, kind::read}, {gradients + weight, kind::write}}), tensors);
  CHECK_FALSE(places.settle(tensors));  // once wanted, never again in place
}

TEST_CASE("lists do not change places under gradients that lie in their weights", "[manager]")
{
  registry tensors = three_weights();
  gradient_places places;
  places.enable(3);
  places.learn(record_of({{weight, kind::read}, {gradients + weight, kind::write}}), tensors);
  places.settle(tensors);
  CHECK_THROWS_AS(places.refuse_exchange(tensors, gradient_list, list_id{2}), usage_error);
  places.refuse_exchange(tensors, value_list, list_id{2});
  tensors[slot_id{weight}].state = tensor_state::gradient;
  CHECK_THROWS_AS(places.refuse_exchange(tensors, value_list, list_id{2}), usage_error);
  tensors[slot_id{weight}].state = tensor_state::hold;
  tensors[slot_id{weight}].chunk = chunk_id{77};
  places.follow_values(tensors);
  CHECK(tensors[slot_id{gradients + weight}].chunk == chunk_id{77});
}

}  // namespace gradient_places_test
