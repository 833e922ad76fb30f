// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <support/oracles/dice.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace differential {

/// What a rehearsal does to tensors while it lasts: states and pins, no bytes.
struct machine::rehearsal {
  std::vector<state> states;        ///< by slot
  std::vector<std::uint32_t> pins;  ///< by slot
  std::vector<std::uint32_t> held;  ///< slots of pins, in the manager's order
};

void machine::rehearse(const op& it)
{
  const bool may = !model_.inside && model_.pins.empty();
  const forecast expected = may ? forecast{.config = true} : refused;
  prepare(expected);
  const figures before = subject_->seen();
  script_ = it.y;
  figures need;
  const answer result = made().rehearse(*this, need);
  if (may)
    while (subject_->pins() > 0) made().release(0);  // those that outlived it change nothing
  judge(expected, result, "rehearse");
  expect(waited_ || before == subject_->seen(), "a rehearsal moved something");
  see_what_waits();
  compare_states();
  // it was run, also where its step does not fit
  if (may && (result.is == verdict::fine || result.is == verdict::config)) model_.learnt = true;
  if (result.is != verdict::fine) return;
  expect(need.capacity[0] <= before.capacity[0] && need.capacity[1] <= before.capacity[1],
         "a rehearsal passed a step that does not fit");
}

/// The rehearsed step.
void machine::run()
{
  support::dice dice{script_};
  rehearsal all;
  for (const slot_model& it : model_.slots) all.states.push_back(it.now);
  all.pins.resize(all.states.size());
  for (std::uint32_t left = dice.between(4, 20); left > 0; --left) {
    const std::uint32_t kind = dice.below(16);
    const std::uint32_t slot = dice.below(static_cast<std::uint32_t>(all.states.size()));
    if (kind < 3)
      rehearse_mistake(kind);
    else if (kind == 3)
      rehearse_drop(all, slot);
    else if (kind < 7)
      rehearse_release(all, slot);
    else
      rehearse_acquire(all, slot, dice.below(1U << 16U));
  }
  expect(subject_->pins() == all.held.size(), "the model lost count of the pins of a rehearsal");
  while (!all.held.empty() && script_ % 4 != 0) rehearse_release(all, 0);
}

void machine::must_refuse(const answer& got)
{
  ++sum_->illegal;
  sum_->note_sentence(got.sentence);
  expect(got.is == verdict::usage, "a mistake in a rehearsal was not refused");
}

void machine::rehearse_mistake(std::uint32_t kind)
{
  figures ignored;
  if (kind == 0)
    must_refuse(made().exchange(2, 2));
  else if (kind == 1)
    must_refuse(made().rehearse(*this, ignored));
  else
    must_refuse(made().use_profile(0, 1));
}

void machine::rehearse_drop(rehearsal& all, std::uint32_t index)
{
  if (slot(index).list != value_list) return;
  const bool may = next_of(all.states[index], event::drop) != illegal;
  const answer result = made().drop(slot(index).tensor);
  if (!may) return must_refuse(result);
  expect(result.is == verdict::fine, "a drop in a rehearsal was refused");
  all.states[index] = state::free;
}

void machine::rehearse_release(rehearsal& all, std::uint32_t number)
{
  if (all.held.empty()) return;
  const std::size_t which = number % all.held.size();
  const std::uint32_t index = all.held[which];
  made().release(which);
  all.held[which] = all.held.back();
  all.held.pop_back();
  if (--all.pins[index] == 0) all.states[index] = state::hold;
}

/// What was not written before the step is taken to be filled; only a weight that lent its bytes cannot be read.
void machine::rehearse_acquire(rehearsal& all, std::uint32_t index, std::uint32_t roll)
{
  const slot_model& it = slot(index);
  if (it.chunk == no_slot) return;
  request wanted{.tensor = it.tensor,
                 .list = it.list,
                 .type = it.type,
                 .how = static_cast<access>(roll % 3),
                 .at = (roll >> 4U) % 3 == 0 ? place::host : place::device};
  if (it.list != value_list) wanted.by = route::list;
  granted got;
  const answer result = made().acquire(wanted, got);
  if (all.states[index] == state::gradient) return must_refuse(result);
  expect(result.is == verdict::fine && got.data == nullptr, "a pin of a rehearsal was refused, or has bytes");
  expect(got.size == it.content.size(), "a pin of a rehearsal has another size than its tensor");
  all.states[index] = state::compute;
  ++all.pins[index];
  all.held.push_back(index);
}

}  // namespace differential
