// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/gradients.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/core/error.hpp>
#include <support/catch.hpp>

#include <initializer_list>

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
