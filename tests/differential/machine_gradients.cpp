// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <cstring>

namespace differential {

namespace {

/// The worse of two forecasts that both have to hold.
[[nodiscard]] forecast both(const forecast& one, const forecast& other)
{
  return {one.fine && other.fine, one.usage || other.usage, one.memory && other.memory, false};
}

}  // namespace

void machine::gradient_of_pin(const op& it)
{
  if (model_.pins.empty()) return;
  const std::size_t index = it.x % model_.pins.size();
  const pin_model pin = model_.pins[index];
  const slot_model& held = slot(pin.slot);
  const std::uint32_t tensor = held.tensor;
  if (pin.is_gradient || pin.is_bytes) return;
  const bool is_weight = held.list == value_list && model_.is_parameter(tensor);
  element kind = is_weight ? slot(model_.slot_of(tensor, gradient_list)).type : held.type;
  if ((it.y & 15U) == 0) kind = kind == element::real ? element::brain : element::real;
  const forecast early = is_weight ? model_.of_opening(tensor, kind, 1) : refused;
  if (is_weight && is_lost(model_.slot_of(tensor, gradient_list), access::write)) return;
  if (is_weight && early.fine) {
    const std::uint32_t gradient = model_.slot_of(tensor, gradient_list);
    for (const pin_model& other : model_.pins)
      if (other.slot == gradient && other.agent != on_caller) return;  // ends first; ask again
  }
  prepare(refused);
  granted got;
  const answer result = made().gradient_of_pin(index, kind, got);
  const bool is_consumed = result.is == verdict::fine || subject_->pins() < model_.pins.size();
  if (!is_consumed) return judge({false, early.usage, false, false}, result, "gradient of a pin");
  expect(early.fine, "a gradient was not refused, or its pin was consumed");
  model_.unpinned(index);
  if (result.is != verdict::fine) {  // the weight's pin is consumed, also where its gradient cannot be pinned
    const forecast late = model_.of_gradient_pin(tensor);
    if (result.is == verdict::memory || result.is == verdict::device) return judge(late, result, "gradient of a pin");
    sum_->note_sentence(result.sentence);
    return expect(late.usage && result.is == verdict::usage,
                  "a gradient of a pin gave another error than the model allows; " + result.sentence);
  }
  expect(model_.of_gradient_pin(tensor).fine, "a gradient was pinned although its chunk is in use in the other tier");
  opened(tensor, pin.agent, got, it.y, slot(model_.slot_of(tensor, gradient_list)).now == state::free);
}

/// A gradient was pinned: what its pin shows, and its first or next contribution.
void machine::opened(std::uint32_t tensor, std::uint32_t agent, const granted& got, std::uint32_t number, bool first)
{
  const std::uint32_t index = model_.slot_of(tensor, gradient_list);
  model_.done[tensor] = model_.measured[tensor] = 0;
  model_.opened = model_.begun;
  expect(got.beta == (first ? 0.0F : 1.0F), "beta of a gradient says that it was written, or not, unlike the model");
  expect(got.size == slot(index).content.size(), "a gradient of another size than its tensor");
  if (first) {
    const bool is_in_place = subject_->state_of(tensor) == state::gradient &&
                             slot(model_.slot_of(tensor, value_list)).now != state::gradient;
    expect(!is_in_place || model_.may_lie_in_place(tensor),
           "a gradient lies in its weight's place, which nothing allowed");
    model_.first_gradient(tensor, is_in_place);
  }
  model_.pinned(index, {.how = access::read_write,
                        .agent = agent,
                        .writing = true,
                        .is_gradient = true,
                        .kernel_uses = slot(index).kernel_uses,
                        .data = got.data});
  const std::size_t pin = model_.pins.size() - 1;
  work(pin, number, !first);
  const bool by_kernel = agent != on_caller;
  if ((number >> 8U & 1U) == 0 || model_.pins.size() > 6 || (by_kernel && !setting_.keeps_kernel_pins)) release(pin);
}

void machine::gradient(const op& it)
{
  const std::uint32_t tensor = it.x % (model_.parameters() + 3);
  element type = model_.is_parameter(tensor) ? slot(model_.slot_of(tensor, gradient_list)).type : element::real;
  if ((it.y & 15U) == 0) type = type == element::real ? element::brain : element::real;
  std::uint32_t agent = (it.y >> 4U & 3U) == 0 || !subject_->is_addressable()
                            ? ((it.y >> 6U & 1U) != 0 ? on_adopted : on_compute)
                            : on_caller;
  if ((it.y >> 14U & 31U) == 0) agent = 3;
  const bool is_weight = model_.is_parameter(tensor);
  if (is_weight) {
    if (is_lost(model_.slot_of(tensor, gradient_list), access::write)) return;
    settle_kernels(model_.slot_of(tensor, gradient_list));
    if (model_.may_lie_in_place(tensor)) settle_kernels(tensor);
  }
  forecast expected = agent == 3 ? refused : model_.of_opening(tensor, type, 0);
  if (expected.fine) expected = both(expected, model_.of_gradient_pin(tensor));
  prepare(expected);
  granted got;
  const answer result = made().gradient(tensor, type, agent, got);
  judge(expected, result, "gradient");
  if (result.is == verdict::fine)
    opened(tensor, agent, got, it.y, slot(model_.slot_of(tensor, gradient_list)).now == state::free);
}

void machine::done_with_pin(const op& it)
{
  for (std::size_t step = 0; step < model_.pins.size(); ++step) {
    const std::size_t index = (it.x + step) % model_.pins.size();
    const pin_model pin = model_.pins[index];
    if (!pin.is_gradient) continue;
    // a kernel may still write what would be measured
    if (pin.agent == on_caller && pin.kernel_uses != slot(pin.slot).kernel_uses) continue;
    const std::uint32_t tensor = slot(pin.slot).tensor;
    const forecast expected = slot(pin.slot).pins == 1 ? forecast{} : refused;
    prepare(expected);
    const answer result = made().done_with_pin(index);
    judge(expected, result, "gradient_done of a pin");
    if (result.is != verdict::fine) return;
    model_.unpinned(index);
    model_.done[tensor] = model_.moment();
    if (pin.agent == on_caller && subject_->is_addressable() && !model_.expects_more()) model_.measured[tensor] = 1;
    return;
  }
}

void machine::done(const op& it)
{
  const std::uint32_t tensor = it.x % (model_.parameters() + 3);
  const std::uint32_t agent = (it.y & 3U) == 0 ? on_compute : on_caller;
  const bool measures = agent == on_caller && subject_->is_addressable() && !model_.expects_more();
  forecast expected = refused;
  if (model_.is_parameter(tensor)) {
    const slot_model& held = slot(model_.slot_of(tensor, gradient_list));
    if (held.now != state::free && held.pins == 0)
      expected = measures ? model_.of_clash(held.chunk, place::device, false) : forecast{};
  }
  prepare(expected);
  const answer result = made().done(tensor, agent);
  judge(expected, result, "gradient_done");
  if (result.is != verdict::fine) return;
  model_.done[tensor] = model_.moment();
  if (!measures) return;
  model_.measured[tensor] = 1;
  slot_model& held = slot(model_.slot_of(tensor, gradient_list));
  model_.pinned(model_.slot_of(tensor, gradient_list), {.kernel_uses = held.kernel_uses});
  model_.unpinned(model_.pins.size() - 1);
}

/// The work of an optimizer on one parameter: reads its gradient, updates its states, overwrites the weight, drops the
/// gradient.
void machine::update(const op& it)
{
  const std::uint32_t tensor = it.x % model_.parameters();
  const slot_model& gradient = slot(model_.slot_of(tensor, gradient_list));
  if (gradient.now == state::free || !gradient.is_defined) return;
  for (std::uint32_t list = 0; list < model_.lists(); ++list)
    if (const std::uint32_t index = model_.slot_of(tensor, list); index != no_slot) settle_kernels(index);
  const std::size_t first = model_.pins.size();
  const bool holds = hold_for_update(tensor, subject_->is_addressable() && it.y % 2 == 0 ? place::device : place::host);
  if (holds) write_update(tensor, first);
  while (model_.pins.size() > first) release(model_.pins.size() - 1);
  if (holds) drop_gradient(tensor);
}

/// Pins what an update needs, the weight last, so that a refusal leaves everything as it was.
bool machine::hold_for_update(std::uint32_t tensor, place where)
{
  for (std::uint32_t step = 1; step <= model_.lists(); ++step) {
    const std::uint32_t list = step % model_.lists();
    const std::uint32_t index = model_.slot_of(tensor, list);
    if (index == no_slot || (index == model_.master_of(tensor) && slot(index).now == state::free)) continue;
    const access how = list == gradient_list ? access::read : list == value_list ? access::write : access::read_write;
    granted got;
    if (!hold({.by = route::bytes, .tensor = tensor, .list = list, .how = how, .at = where}, got)) return false;
  }
  return true;
}

void machine::write_update(std::uint32_t tensor, std::size_t first)
{
  const std::uint32_t master = model_.master_of(tensor);
  const bool has_master = master != no_slot && slot(master).now != state::free && slot(master).is_defined;
  for (std::size_t pin = first; pin < model_.pins.size(); ++pin) {
    slot_model& what = slot(model_.pins[pin].slot);
    if (what.list != value_list) look_at(pin, "in an update");
    if (!writes(model_.pins[pin].how)) continue;
    if (what.list == value_list && has_master)
      what.content = rounded(slot(master).content);
    else
      fill_with(what.content, what.type, ++number_);
    what.is_defined = true;
    std::memcpy(model_.pins[pin].data, what.content.data(), what.content.size());
  }
}

void machine::drop(const op& it)
{
  const std::uint32_t tensor = it.x % (model_.tensors() + 2);
  const bool is_known = tensor < model_.tensors();
  const std::uint32_t index = model_.slot_of(tensor, value_list);
  const bool may = is_known && next_of(slot(index).now, event::drop) != illegal;
  const forecast expected = may ? allowed : refused;
  prepare(expected);
  const answer result = made().drop(tensor);
  judge(expected, result, "drop");
  if (result.is == verdict::fine) model_.dropped(index);
}

void machine::drop_gradient(std::uint32_t tensor)
{
  const bool is_weight = model_.is_parameter(tensor);
  if (is_weight) {
    settle_kernels(tensor);
    if (model_.master_of(tensor) != no_slot) settle_kernels(model_.master_of(tensor));
  }
  const forecast expected =
      model_.of_drop_gradient(tensor, is_weight ? subject_->place_of_update(tensor) : place::host);
  const bool restores = is_weight && slot(tensor).now == state::gradient;
  prepare(expected);
  const answer result = made().drop_gradient(tensor);
  // the weight could not be made again yet: call again
  if (result.is == verdict::usage && restores && expected.fine && !waited_) {
    sum_->note_sentence(result.sentence);
    expect(expected.usage, "drop_gradient was refused; " + result.sentence);
  } else {
    judge(expected, result, "drop_gradient", restores ? 8 * setting_.frame : 0);
  }
  if (!is_weight ||
      (result.is != verdict::fine &&
       subject_->is_filled(tensor, gradient_list) == (slot(model_.slot_of(tensor, gradient_list)).now != state::free)))
    return;
  model_.gradient_dropped(tensor, result.is == verdict::fine);
}

void machine::drop_gradients()
{
  for (std::uint32_t tensor = 0; tensor < model_.parameters(); ++tensor) {
    settle_kernels(model_.slot_of(tensor, gradient_list));
    const slot_model& it = slot(model_.slot_of(tensor, gradient_list));
    if (it.pins > 0 || slot(tensor).now == state::gradient) return drop_gradient(tensor);
  }
  prepare(allowed);
  const answer result = made().drop_gradients();
  judge(allowed, result, "drop_gradients");
  for (std::uint32_t tensor = 0; tensor < model_.parameters(); ++tensor) {
    if (result.is != verdict::fine && subject_->is_filled(tensor, gradient_list)) return;
    model_.gradient_dropped(tensor, true);
  }
}

}  // namespace differential
