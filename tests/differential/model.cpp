// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <utility>

namespace differential {

plain_model::plain_model(const setting& wanted, const std::vector<slot_place>& places, tally& sum)
    : plan_{plan_of(wanted.tensors)},
      sum_{&sum},
      frame_{wanted.frame},
      in_place_{wanted.in_place},
      has_masters_{wanted.tensors != 0}
{
  const auto add = [&](std::uint32_t tensor, std::uint32_t list) {
    slot_model it;
    it.tensor = tensor;
    it.list = list;
    const tensor_plan& from = plan_.tensors[tensor];
    const bool is_master = list > 1 && plan_.lists[list - 2].is_master;
    it.type = list > 1 || (list == gradient_list && wanted.wide) ? element::real : from.type;
    it.starts_at_zero = list > 1 && !is_master;
    it.chunk = it.own_chunk = places[slots.size()].chunk;
    it.content.resize(std::size_t{from.elements} * size_of(it.type));
    if (it.chunk != no_slot && it.chunk >= chunks.size()) chunks.resize(it.chunk + 1);
    if (it.chunk != no_slot) chunks[it.chunk].frames = places[slots.size()].frames;
    slots.push_back(std::move(it));
  };
  for (std::uint32_t list = 0; list < lists(); ++list)
    for (std::uint32_t index = 0; index < plan_.parameters; ++index) add(index, list);
  for (std::uint32_t index = plan_.parameters; index < tensors(); ++index) add(index, value_list);
  done.resize(plan_.parameters);
  measured.resize(plan_.parameters);
  waits.resize(plan_.parameters);
}

std::uint32_t plain_model::slot_of(std::uint32_t tensor, std::uint32_t list) const noexcept
{
  if (tensor >= tensors() || list >= lists()) return no_slot;
  if (!is_parameter(tensor))
    return list == value_list ? lists() * plan_.parameters + tensor - plan_.parameters : no_slot;
  const std::uint32_t index = list * plan_.parameters + tensor;
  return slots[index].chunk == no_slot ? no_slot : index;
}

std::uint32_t plain_model::master_of(std::uint32_t tensor) const noexcept
{
  return has_masters_ && is_parameter(tensor) ? slot_of(tensor, 2) : no_slot;
}

// What the documentation says of errors.

forecast plain_model::of_clash(std::uint32_t chunk, place at, bool writing) const
{
  const chunk_model& it = chunks[chunk];
  if (at == place::device) return it.writers[1] > 0 || (writing && it.pins[1] > 0) ? refused : allowed;
  if ((it.pins[0] > 0 && writing) || it.writers[0] > 0) return refused;
  return it.pins[0] > 0 ? doubtful : allowed;  // whether the host's copy is still good is not known here
}

forecast plain_model::of_acquire(const request& it, std::uint32_t agents) const
{
  if (it.agent != on_caller && (it.agent >= agents || it.agent == 2 || it.agent == 3)) return refused;
  const std::uint32_t slot =
      it.by == route::tensor && it.tensor < tensors() ? slot_of(it.tensor, value_list) : slot_of(it.tensor, it.list);
  if (slot == no_slot || (it.by != route::tensor && !is_parameter(it.tensor))) return refused;
  const slot_model& wanted = slots[slot];
  if (it.by == route::list && it.type != wanted.type) return refused;
  const std::uint32_t master = wanted.list == value_list ? master_of(it.tensor) : no_slot;
  if (writes(it.how) && it.by != route::bytes && master != no_slot && slots[master].now != state::free)
    if (inside || slots[master].pins > 0) return refused;
  const bool fresh = wanted.now == state::free;
  if (fresh && it.how != access::write && !wanted.starts_at_zero) return refused;
  if (wanted.now == state::gradient && !(it.by == route::bytes && it.how == access::write)) return refused;
  forecast result = of_clash(fresh ? wanted.own_chunk : wanted.chunk, it.at, writes(it.how) || fresh);
  if (!fresh || wanted.list != gradient_list || !may_lie_in_place(it.tensor)) return result;
  const slot_model& weight = slots[slot_of(it.tensor, value_list)];
  const forecast there = of_clash(weight.chunk, it.at, true);
  if (!result.fine && !there.fine) return refused;
  return weight.pins > 0 || weight.now == state::free || weight.now == state::gradient ||
                 slots[master_of(it.tensor)].now == state::free || result.usage || there.usage
             ? doubtful
             : allowed;
}

forecast plain_model::of_opening(std::uint32_t tensor, element type, std::uint32_t own_pins) const
{
  if (tensor >= tensors() || !is_parameter(tensor) || type != slots[slot_of(tensor, gradient_list)].type ||
      !is_open(tensor))
    return refused;
  if (slots[slot_of(tensor, gradient_list)].now != state::free || !may_lie_in_place(tensor)) return allowed;
  const slot_model& weight = slots[slot_of(tensor, value_list)];
  const bool is_ready =
      weight.now != state::free && weight.now != state::gradient && slots[master_of(tensor)].now != state::free;
  return weight.pins > own_pins || !is_ready ? doubtful : allowed;
}

forecast plain_model::of_gradient_pin(std::uint32_t tensor) const
{
  const slot_model& it = slots[slot_of(tensor, gradient_list)];
  const forecast here = of_clash(it.now == state::free ? it.own_chunk : it.chunk, place::device, true);
  if (it.now != state::free || !may_lie_in_place(tensor)) return here;
  const forecast there = of_clash(slots[slot_of(tensor, value_list)].chunk, place::device, true);
  if (!here.fine && !there.fine) return refused;
  return here.fine && there.fine ? allowed : doubtful;
}

forecast plain_model::of_exchange(std::uint32_t left, std::uint32_t right) const
{
  if (inside || left >= lists() || right >= lists()) return refused;
  forecast result = allowed;
  if (has_masters_ && (left == value_list || right == value_list)) {
    if (in_place_ || left == gradient_list || right == gradient_list) return refused;
    for (std::uint32_t index = 0; index < plan_.parameters; ++index) {
      const std::uint32_t master = master_of(index);
      if (master == no_slot || slots[master].now != state::free) continue;
      if (waits[index] == 0) return refused;
      result = doubtful;  // the update that waits comes first, and may make it
    }
  }
  for (std::uint32_t index = 0; index < plan_.parameters; ++index) {
    const slot_model& one = slots[left * plan_.parameters + index];
    const slot_model& other = slots[right * plan_.parameters + index];
    if (one.type != other.type || (one.chunk == no_slot) != (other.chunk == no_slot) || one.pins + other.pins > 0)
      return refused;
    if (!may_lie_in_place(index)) continue;
    const bool in_use = slots[index].now == state::gradient || slots[plan_.parameters + index].now != state::free;
    if (in_use || left == gradient_list || right == gradient_list) result = doubtful;
  }
  return result;
}

forecast plain_model::of_drop_gradient(std::uint32_t tensor, place update) const
{
  if (tensor >= tensors() || !is_parameter(tensor)) return refused;
  const slot_model& gradient = slots[slot_of(tensor, gradient_list)];
  if (gradient.now != state::free && gradient.pins > 0) return refused;
  const slot_model& weight = slots[slot_of(tensor, value_list)];
  if (weight.now != state::gradient) return allowed;
  const forecast read = of_clash(slots[master_of(tensor)].chunk, update, false);
  const forecast write = of_clash(weight.chunk, update, true);
  return read.usage || write.usage ? doubtful : allowed;
}

// What calls do.

void plain_model::step(slot_model& it, event what)
{
  const int next = next_of(it.now, what);
  if (next == illegal) throw divergence{"the model did what its own table forbids"};
  ++sum_->transitions[static_cast<std::size_t>(it.now)][static_cast<std::size_t>(what)];
  it.now = static_cast<state>(next);
}

void plain_model::pinned(std::uint32_t slot, const pin_model& made)
{
  slot_model& it = slots[slot];
  if (it.now == state::free) {
    step(it, event::materialize);
    it.is_defined = true;
  } else if (it.now == state::gradient) {
    step(it, event::release);  // the weight is made again, over its gradient
    it.is_defined = true;
    slots[slot_of(it.tensor, gradient_list)].is_defined = false;
  }
  step(it, event::acquire);
  ++it.pins;
  chunk_model& chunk = chunks[it.chunk];
  ++chunk.pins[static_cast<int>(made.at)];
  if (made.writing) ++chunk.writers[static_cast<int>(made.at)];
  pins.push_back(made);
  pins.back().slot = slot;
  pins.back().chunk = it.chunk;
}

void plain_model::give_back(std::uint32_t chunk, place at, bool writing) noexcept
{
  --chunks[chunk].pins[static_cast<int>(at)];
  if (writing) --chunks[chunk].writers[static_cast<int>(at)];
}

void plain_model::unpinned(std::size_t pin)
{
  const pin_model it = pins[pin];
  pins[pin] = pins.back();
  pins.pop_back();
  give_back(it.chunk, it.at, it.writing);
  slot_model& slot = slots[it.slot];
  if (--slot.pins == 0) step(slot, event::release);
}

/// Before its pin: where the gradient lies from now on.
void plain_model::first_gradient(std::uint32_t tensor, bool in_place)
{
  slot_model& weight = slots[slot_of(tensor, value_list)];
  slot_model& gradient = slots[slot_of(tensor, gradient_list)];
  gradient.chunk = in_place ? weight.chunk : gradient.own_chunk;
  gradient.is_defined = true;
  if (!in_place) return;
  step(weight, event::acquire);
  step(weight, event::consume);
  weight.is_defined = false;
}

void plain_model::weight_written(std::uint32_t tensor)
{
  const std::uint32_t master = master_of(tensor);
  if (master == no_slot) return;
  if (slots[master].now != state::free && !inside) dropped(master);
  masters_wanted = true;
}

void plain_model::dropped(std::uint32_t slot)
{
  step(slots[slot], event::drop);
}

void plain_model::gradient_dropped(std::uint32_t tensor, bool restored)
{
  slot_model& gradient = slots[slot_of(tensor, gradient_list)];
  if (gradient.now != state::free) dropped(slot_of(tensor, gradient_list));
  done[tensor] = measured[tensor] = 0;
  slot_model& weight = slots[slot_of(tensor, value_list)];
  if (weight.now != state::gradient || !restored) return;
  step(weight, event::release);
  step(weight, event::acquire);
  step(weight, event::release);
  slot_model& master = slots[master_of(tensor)];
  const bool was_held = master.pins > 0;
  step(master, event::acquire);
  if (!was_held) step(master, event::release);
  weight.content = rounded(master.content);
  weight.is_defined = master.is_defined;
}

void plain_model::master_made(std::uint32_t tensor)
{
  slot_model& weight = slots[slot_of(tensor, value_list)];
  slot_model& master = slots[master_of(tensor)];
  step(weight, event::acquire);
  step(weight, event::release);
  step(master, event::materialize);
  step(master, event::acquire);
  step(master, event::release);
  master.content = widened(weight.content);
  master.is_defined = weight.is_defined;
}

void plain_model::exchanged(std::uint32_t left, std::uint32_t right)
{
  if (left == right) return;
  if (left == gradient_list || right == gradient_list) {
    done.assign(done.size(), 0);
    measured.assign(measured.size(), 0);
  }
  for (std::uint32_t index = 0; index < plan_.parameters; ++index) {
    slot_model& one = slots[left * plan_.parameters + index];
    slot_model& other = slots[right * plan_.parameters + index];
    std::swap(one.content, other.content);
    std::swap(one.chunk, other.chunk);
    std::swap(one.own_chunk, other.own_chunk);
    std::swap(one.is_defined, other.is_defined);
    std::swap(one.now, other.now);
  }
}

void plain_model::used(std::uint32_t slot)
{
  slot_model& it = slots[slot];
  if (it.now == state::free) {
    step(it, event::materialize);
    it.is_defined = true;
    if (it.starts_at_zero) it.content.assign(it.content.size(), std::byte{});
  } else if (it.now == state::gradient) {
    step(it, event::release);
  }
  step(it, event::acquire);
  step(it, event::release);
}

void plain_model::updated(std::uint32_t tensor, float factor, bool late)
{
  const std::uint32_t master = master_of(tensor);
  slot_model& weight = slots[slot_of(tensor, value_list)];
  const bool makes_master = master != no_slot && slots[master].now == state::free;
  update_model all;
  all.gradient = numbers_of(slots[slot_of(tensor, gradient_list)].content, slots[slot_of(tensor, gradient_list)].type);
  for (float& it : all.gradient) it *= factor;
  all.parameter = master == no_slot || makes_master ? numbers_of(weight.content, weight.type)
                                                    : numbers_of(slots[master].content, element::real);
  const std::uint32_t momentum = slot_of(tensor, has_masters_ ? 3 : 2);
  const std::uint32_t variance = slot_of(tensor, has_masters_ ? 4 : 3);
  for (const std::uint32_t index :
       {slot_of(tensor, gradient_list), master, momentum, variance, slot_of(tensor, value_list)})
    if (index != no_slot) used(index);
  all.momentum = numbers_of(slots[momentum].content, element::real);
  if (variance != no_slot) all.variance = numbers_of(slots[variance].content, element::real);
  take_averages(all, updates);
  slots[momentum].content = bytes_of(all.momentum);
  if (variance != no_slot) slots[variance].content = bytes_of(all.variance);
  if (master != no_slot) slots[master].content = bytes_of(all.parameter), slots[master].is_defined = true;
  weight.content = master == no_slot ? bytes_of(all.parameter) : rounded(slots[master].content);
  weight.is_defined = true;
  gradient_dropped(tensor, true);
  waits[tensor] = late ? 1 : 0;
}

void plain_model::iteration_ended()
{
  inside = exceptional = false;
  ++iterations;
}

// Room.

std::uint64_t plain_model::stuck_on_device() const noexcept
{
  std::uint64_t sum = 0;
  for (const chunk_model& it : chunks) sum += it.pins[0] > 0 ? it.frames * frame_ : 0;
  for (const lease_model& it : leases) sum += it.on_host ? 0 : it.size;
  return sum;
}

std::uint32_t plain_model::pieces_on_device() const noexcept
{
  std::uint32_t sum = 0;
  for (const chunk_model& it : chunks) sum += it.pins[0] > 0 ? 1U : 0U;
  for (const lease_model& it : leases) sum += it.on_host ? 0U : 1U;
  return sum;
}

std::uint64_t plain_model::stuck_on_host() const noexcept
{
  std::uint64_t sum = 0;
  for (const chunk_model& it : chunks) sum += it.frames * frame_;
  for (const lease_model& it : leases) sum += it.on_host ? it.size : 0;
  return sum;
}

std::uint32_t plain_model::pieces_on_host() const noexcept
{
  auto sum = static_cast<std::uint32_t>(chunks.size());
  for (const lease_model& it : leases) sum += it.on_host ? 1U : 0U;
  return sum;
}

}  // namespace differential
