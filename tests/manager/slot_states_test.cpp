// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/slot_states.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>
#include <support/catch.hpp>

namespace slot_states_test {

namespace cm = chunkmem;
using namespace cm::literals;
using states = cm::slot_states<cm::training_rules>;

namespace {

/// One parameter in its two lists.
struct model {
  model()
  {
    tensors.add({16}, cm::dtype::float32, cm::role::parameter, cm::group_id{0});
    tensors.name(cm::tensor_id{0}, "head");
    tensors.seal(cm::append_layout{}, 4_KiB);
  }
  cm::registry tensors;
  [[nodiscard]] cm::slot& value() { return tensors.slots()[0]; }
};

}  // namespace

TEST_CASE("a slot gets bytes by its first write, or by any first access where it starts at zero", "[manager]")
{
  cm::slot fresh;
  CHECK(states::event_of_access(fresh, cm::entry_kind::write) == cm::tensor_event::materialize);
  CHECK(states::event_of_access(fresh, cm::entry_kind::read) == cm::tensor_event::acquire);
  fresh.starts_at_zero = true;
  CHECK(states::event_of_access(fresh, cm::entry_kind::read_write) == cm::tensor_event::materialize);
  fresh.state = cm::tensor_state::hold;
  CHECK(states::event_of_access(fresh, cm::entry_kind::write) == cm::tensor_event::acquire);
}

TEST_CASE("pins of a slot are counted, by place, and the last one lets go", "[manager]")
{
  model it;
  states::expect(it.tensors, cm::slot_id{0}, cm::tensor_event::materialize);
  states::begin(it.value(), cm::memory_location::host);
  states::begin(it.value(), cm::memory_location::device);
  CHECK(states::can_begin(it.value()));
  CHECK((it.value().state == cm::tensor_state::compute && it.value().pins == 2 && it.value().host_pins == 1));
  CHECK_THROWS_WITH(states::expect(it.tensors, cm::slot_id{0}, cm::tensor_event::drop),
                    Catch::Matchers::ContainsSubstring("tensor 'head' (value) is compute and cannot drop"));
  states::end(it.value(), cm::memory_location::host);
  CHECK((it.value().state == cm::tensor_state::compute && it.value().pins == 1 && it.value().host_pins == 0));
  states::end(it.value(), cm::memory_location::device);
  CHECK((it.value().state == cm::tensor_state::hold && it.value().pins == 0));
  states::expect(it.tensors, cm::slot_id{0}, cm::tensor_event::drop);
  states::drop(it.value());
  CHECK(it.value().state == cm::tensor_state::free);
  CHECK_FALSE(states::can_begin(it.value()));
}

TEST_CASE("a value whose gradient has its bytes is unreadable until it is overwritten", "[manager]")
{
  model it;
  states::begin(it.value(), cm::memory_location::device);
  states::end(it.value(), cm::memory_location::device);
  states::consume(it.value());
  CHECK((it.value().state == cm::tensor_state::gradient && it.value().pins == 0));
  CHECK_THROWS_AS(states::expect(it.tensors, cm::slot_id{0}, cm::tensor_event::acquire), cm::usage_error);
  states::take_back(it.value());
  CHECK(it.value().state == cm::tensor_state::hold);
  states::undo(it.value(), cm::tensor_state::gradient);
  CHECK(it.value().state == cm::tensor_state::gradient);
  states::take_back(it.value());
  states::take_back(it.value());  // nothing is to be taken back
  CHECK(it.value().state == cm::tensor_state::hold);
}

TEST_CASE("the rules decide: under those of inference nothing is consumed", "[manager]")
{
  model it;
  using inference = cm::slot_states<cm::inference_rules>;
  inference::begin(it.value(), cm::memory_location::device);
  CHECK_THROWS_AS(inference::expect(it.tensors, cm::slot_id{0}, cm::tensor_event::consume), cm::usage_error);
}

}  // namespace slot_states_test
