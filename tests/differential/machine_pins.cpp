// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <algorithm>
#include <cstring>

namespace differential {
namespace {

constexpr std::size_t most_pins = 6;

}  // namespace

/// What the numbers of a call mean: mostly sound, now and then a handle, type or agent that is not.
request machine::request_of(const op& it) const
{
  request result;
  const auto all = static_cast<std::uint32_t>(model_.slots.size());
  const std::uint32_t index = it.x % (all + 4);
  const bool is_odd = index >= all;
  if (is_odd) {
    result.tensor = index % 2 == 0 ? model_.tensors() + it.y % 2 : it.y % model_.tensors();
    result.list = index % 2 == 0 ? value_list : 2 + it.y % 7;
  } else {
    result.tensor = model_.slots[index].tensor;
    result.list = model_.slots[index].list;
    result.type = model_.slots[index].type;
  }
  result.how = static_cast<access>(std::min(it.y & 3U, 2U) % 3);
  const std::uint32_t where = it.y >> 2U & 3U;
  result.at = where == 2 ? place::host : place::device;
  if (where == 3 || (where < 2 && !subject_->is_addressable()))
    result.agent = (it.y >> 4U & 1U) != 0 ? on_adopted : on_compute;
  if ((it.y >> 14U & 31U) == 0) result.agent = 2 + (it.y >> 4U & 1U) * 4;  // the manager's own, or none
  const bool is_value = result.list == value_list && (it.y >> 9U & 1U) == 0;
  const bool as_bytes = (it.y >> 5U & 7U) == 0;
  result.by = is_value ? route::tensor : as_bytes || result.agent != on_caller ? route::bytes : route::list;
  if (result.by == route::list && (it.y >> 10U & 15U) == 0)
    result.type = result.type == element::real ? element::brain : element::real;
  if (result.at == place::host && result.by == route::bytes) result.agent = on_caller;
  if (result.at == place::host && result.by == route::tensor) result.agent = on_caller;
  if (result.by == route::tensor && result.tensor < model_.tensors())
    result.type = model_.planned().tensors[result.tensor].type;
  return result;
}

/// Bytes that the update of a weight in its gradient's place has overwritten: nobody may write them again before they
/// are dropped.
bool machine::is_lost(std::uint32_t index, access how) const
{
  const slot_model& it = model_.slots[index];
  return it.list == gradient_list && it.now != state::free && !it.is_defined && writes(how);
}

void machine::acquire(const op& it)
{
  const request wanted = request_of(it);
  const std::uint32_t index = model_.slot_of(wanted.tensor, wanted.list);
  if (index != no_slot) {
    if (is_lost(index, wanted.how)) return;
    settle_kernels(index);
  }
  granted got;
  if (!hold(wanted, got)) return;
  const std::size_t pin = model_.pins.size() - 1;
  work(pin, it.y, wanted.how != access::write);
  const bool by_kernel = wanted.agent != on_caller;
  const bool keeps =
      (it.y >> 8U & 1U) != 0 && model_.pins.size() <= most_pins && (!by_kernel || setting_.keeps_kernel_pins);
  if (!keeps) release(pin);
}

/// Makes a pin as the rules say. @return   false where it was refused, or there was no room
bool machine::hold(const request& wanted, granted& got)
{
  const forecast expected = model_.of_acquire(wanted, subject_->agents());
  prepare(expected);
  const answer result = made().acquire(wanted, got);
  judge(expected, result, "acquire");
  if (result.is != verdict::fine) return false;
  const std::uint32_t index = wanted.by == route::tensor ? model_.slot_of(wanted.tensor, value_list)
                                                         : model_.slot_of(wanted.tensor, wanted.list);
  slot_model& it = slot(index);
  const bool fresh = it.now == state::free;
  if (fresh && it.list == gradient_list)
    model_.first_gradient(
        wanted.tensor, model_.may_lie_in_place(wanted.tensor) && subject_->state_of(wanted.tensor) == state::gradient);
  if (fresh && it.starts_at_zero) std::fill(it.content.begin(), it.content.end(), std::byte{});
  expect(got.size == it.content.size(), "a pin of another size than its tensor");
  model_.pinned(index, {.how = wanted.how,
                        .at = wanted.at,
                        .agent = wanted.agent,
                        .writing = writes(wanted.how) || fresh,
                        .is_bytes = wanted.by == route::bytes,
                        .kernel_uses = it.kernel_uses,
                        .data = got.data});
  if (it.list == value_list && wanted.by != route::bytes && writes(wanted.how)) model_.weight_written(wanted.tensor);
  if (it.list == gradient_list && writes(wanted.how)) {
    model_.done[wanted.tensor] = model_.measured[wanted.tensor] = 0;
    model_.opened = model_.begun;
  }
  return true;
}

/// Reads and writes through a pin that was just made, or has its kernel do it.
void machine::work(std::size_t pin, std::uint32_t number, bool reads)
{
  const pin_model& it = model_.pins[pin];
  slot_model& what = slot(it.slot);
  if (it.agent != on_caller) {
    launch(it.slot, it.agent, it.data, reads, writes(it.how));
    return;
  }
  if (reads) look_at(pin, "just acquired");
  if (!writes(it.how)) return;
  fill_with(what.content, what.type, ++number_ + number % 7);
  what.is_defined = true;
  std::memcpy(it.data, what.content.data(), what.content.size());
}

void machine::launch(std::uint32_t index, std::uint32_t agent, std::byte* data, bool reads, bool is_writing)
{
  slot_model& what = slot(index);
  ++what.kernel_uses;
  job& work = jobs_.emplace_back();
  work.wrong = &wrong_;
  if (reads && what.is_defined) work.expected = what.content;
  if (is_writing) {
    fill_with(what.content, what.type, ++number_);
    what.is_defined = true;
    work.fresh = what.content;
  }
  subject_->launch(agent, data, work);
}

/// A pin's bytes are those of the model, as long as no kernel was started on them.
void machine::look_at(std::size_t pin, std::string_view when)
{
  const pin_model& it = model_.pins[pin];
  const slot_model& what = slot(it.slot);
  if (it.agent != on_caller || it.kernel_uses != what.kernel_uses || !what.is_defined) return;
  if (it.at == place::device && !subject_->is_addressable()) return;
  if (std::memcmp(it.data, what.content.data(), what.content.size()) == 0) return;
  std::string text{"other bytes than the model's through a pin "};
  expect(false, text.append(when)
                    .append(" (tensor ")
                    .append(std::to_string(what.tensor))
                    .append(", list ")
                    .append(std::to_string(what.list))
                    .append(")"));
}

/// Pins of kernels end before another agent uses their tensor: what comes next is ordered after them by their release.
void machine::settle_kernels(std::uint32_t index)
{
  for (std::size_t pin = model_.pins.size(); pin-- > 0;)
    if (model_.pins[pin].slot == index && model_.pins[pin].agent != on_caller) release(pin);
  // the same bytes
  if (slot(index).now == state::gradient) settle_kernels(model_.slot_of(slot(index).tensor, gradient_list));
}

void machine::release(std::size_t pin)
{
  look_at(pin, "about to be released");
  made().release(pin);
  const std::uint32_t index = model_.pins[pin].slot;
  model_.unpinned(pin);
  if (slot(index).list == value_list)
    expect(subject_->state_of(slot(index).tensor) == slot(index).now, "a release led to another state");
}

void machine::touch(std::size_t pin, std::uint32_t number)
{
  granted got;
  const answer result = made().look(pin, got);
  prepare({});
  judge({}, result, "look");
  const pin_model& it = model_.pins[pin];
  slot_model& what = slot(it.slot);
  expect(got.data == it.data && got.size == what.content.size(), "a pin that lives has another address");
  look_at(pin, "that was kept");
  if (!writes(it.how) || it.agent != on_caller || it.kernel_uses != what.kernel_uses || !what.is_defined) return;
  if (it.at == place::device && !subject_->is_addressable()) return;
  fill_with(what.content, what.type, ++number_ + number % 7);
  std::memcpy(it.data, what.content.data(), what.content.size());
}

void machine::move_pin(std::size_t pin)
{
  prepare(refused);
  judge(refused, made().move_pin(pin), "use of a pin that was moved from");
  touch(pin, 1);
}

/// Every tensor that holds something, read in both tiers.
void machine::audit()
{
  for (std::uint32_t index = 0; index < model_.slots.size(); ++index) {
    if (slot(index).now == state::free || slot(index).now == state::gradient) continue;
    for (const place where : {place::device, place::host}) {
      request wanted{.tensor = slot(index).tensor, .list = slot(index).list, .type = slot(index).type, .at = where};
      if (slot(index).list != value_list) wanted.by = route::bytes;
      if (where == place::device && !subject_->is_addressable()) wanted.agent = on_compute;
      settle_kernels(index);
      if (slot(index).now == state::free) continue;
      granted got;
      bool holds = hold(wanted, got);
      for (int again = 0; !holds && again < 3 && setting_.faults > 0; ++again) holds = hold(wanted, got);
      if (!holds) continue;
      const std::size_t pin = model_.pins.size() - 1;
      work(pin, 0, true);
      release(pin);
    }
  }
}

void machine::release_all()
{
  while (!model_.pins.empty()) release(model_.pins.size() - 1);
  while (!model_.leases.empty()) end_lease(model_.leases.size() - 1);
}

}  // namespace differential
