#include "machine.hpp"

#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

namespace differential {

namespace {

constexpr std::uint32_t compute = 1;
constexpr std::size_t most_leases = 3;

}  // namespace

void machine::lease(const op& it)
{
  if (model_.leases.size() >= most_leases) return;
  const bool on_host = it.x % 5 == 0;
  const std::uint64_t size = 1 + it.y % (on_host ? setting_.frame : 3 * setting_.frame);
  const std::uint32_t agent = !on_host && ((it.y >> 20U & 1U) != 0 || !subject_->is_addressable()) ? compute : on_caller;
  prepare(allowed);
  granted got;
  const answer result = subject_->lease(on_host, size, agent, got);
  judge(allowed, result, "lease");
  if (result.is != verdict::fine) return;
  expect(got.size == (size + 255) / 256 * 256, "a lease of another size than was asked for");
  model_.leases.push_back({on_host, got.size, agent, got.data, static_cast<std::uint8_t>(++number_)});
  const lease_model& made = model_.leases.back();
  const std::vector<std::byte> content(made.size, std::byte{made.value});
  if (agent == on_caller) {
    std::memcpy(made.data, content.data(), content.size());
    return;
  }
  job& work = jobs_.emplace_back();
  work.wrong = &wrong_;
  work.fresh = content;
  subject_->launch(agent, made.data, work);
}

void machine::end_lease(std::size_t at)
{
  const lease_model it = model_.leases[at];
  const std::vector<std::byte> content(it.size, std::byte{it.value});
  if (it.agent == on_caller) {
    expect(std::memcmp(it.data, content.data(), content.size()) == 0, "a lease holds other bytes than were written");
  } else {
    job& work = jobs_.emplace_back();
    work.wrong = &wrong_;
    work.expected = content;
    subject_->launch(it.agent, it.data, work);
  }
  subject_->end_lease(at);
  model_.leases[at] = model_.leases.back();
  model_.leases.pop_back();
}

void machine::begin(const op& it)
{
  const std::uint32_t micro_batches = it.y % 8 == 0 ? 2 : 1;
  forecast expected{.fine = true, .memory = setting_.faults > 0};
  if (model_.inside) expected = refused;
  bool makes_masters = false;
  for (std::uint32_t at = 0; at < model_.parameters() && model_.masters_wanted && !model_.inside; ++at) {
    const std::uint32_t master = model_.master_of(at);
    if (master == no_slot || slot(master).now != state::free || slot(at).now == state::free) continue;
    makes_masters = expected.memory = true;
    if (slot(at).pins > 0) expected = {.fine = false, .usage = true, .memory = true};
    const place update = subject_->place_of_update(at);
    const forecast read = model_.of_clash(slot(at).chunk, update, false);
    const forecast write = model_.of_clash(slot(master).chunk, update, true);
    if (!read.fine || !write.fine) expected = {.fine = false, .usage = true, .memory = true};
    else if (read.usage || write.usage) expected.usage = true;
  }
  if (micro_batches > 1 && setting_.in_place) expected = {.fine = false, .config = true};
  prepare(expected);
  const answer result = subject_->begin(it.x % 3, micro_batches);
  if (makes_masters && result.is == verdict::usage) {  // those before it may have been made
    sum_->note_sentence(result.sentence);
    expect(expected.usage, "an iteration was refused; " + result.sentence);
  } else {
    judge(expected, result, "iteration", makes_masters ? 8 * setting_.frame : 0);
  }
  if (!model_.inside && model_.masters_wanted && result.is != verdict::config) find_masters(result.is == verdict::fine);
  if (result.is != verdict::fine) return;
  model_.inside = true;
  model_.masters_wanted = false;
  model_.micro_batches = micro_batches;
  model_.name = it.x % 3;
  before_ = subject_->seen();
}

/// Masters that were made when an iteration began.
void machine::find_masters(bool all)
{
  bool is_whole = true;
  for (std::uint32_t at = 0; at < model_.parameters(); ++at) {
    const std::uint32_t master = model_.master_of(at);
    if (master == no_slot || slot(master).now != state::free || slot(at).now == state::free) continue;
    const bool is_made = subject_->is_filled(at, 2);
    expect(is_made || !all, "an iteration began without a master of a weight that was written");
    if (is_made) model_.master_made(at);
    is_whole = is_whole && is_made;
  }
  if (is_whole) model_.masters_wanted = false;
}

void machine::pass_to(const op& it)
{
  if (!model_.inside) return;
  const auto next = static_cast<pass>(it.x % 3);
  const std::uint32_t micro_batch = it.y % 4 == 0 ? 2 : it.y % model_.micro_batches;
  const forecast expected = micro_batch < model_.micro_batches ? forecast{} : refused;
  prepare(expected);
  const answer result = subject_->pass_to(next, micro_batch);
  judge(expected, result, "pass");
  if (result.is == verdict::fine) model_.set_pass(next);
}

void machine::end(bool abandoned)
{
  if (!model_.inside) return;
  if (abandoned) subject_->abandon();
  else judge({}, subject_->end(), "end of an iteration");
  const bool is_kept = abandoned || model_.exceptional;
  const bool was_known = model_.recorded[model_.name];
  if (!is_kept) model_.recorded[model_.name] = model_.learnt = true;
  model_.iteration_ended();
  expect(subject_->has_profile(model_.name) == model_.recorded[model_.name], "an iteration was recorded, or not, unlike the model");
  if (is_kept) return;
  const bool is_repeat = was_known && !subject_->has_drifted();
  ++(is_repeat ? sum_->repeated : sum_->diverged);
}

void machine::exchange(const op& it)
{
  const std::uint32_t left = it.x % (model_.lists() + 1);
  const std::uint32_t right = it.y % (model_.lists() + 1);
  const forecast expected = model_.of_exchange(left, right);
  prepare(expected);
  const answer result = subject_->exchange(left, right);
  judge(expected, result, "exchange");
  if (result.is == verdict::fine) model_.exchanged(left, right);
}

void machine::use_profile(const op& it)
{
  const std::uint32_t from = it.x % 3;
  const std::uint32_t to = it.y % 3;
  if (!model_.recorded[from]) return;
  const forecast expected = model_.inside || model_.recorded[to] ? refused : forecast{};
  prepare(expected);
  const answer result = subject_->use_profile(from, to);
  judge(expected, result, "use_profile");
  if (result.is == verdict::fine) model_.recorded[to] = true;
}

void machine::mistake(const op& it)
{
  const std::uint32_t which = it.x % mistake_count;
  const forecast expected = which + config_mistakes < mistake_count ? refused : forecast{.fine = false, .config = true};
  prepare(expected);
  judge(expected, subject_->mistake(which), "mistake " + std::to_string(which));
}

// Rehearsals.

void machine::rehearse(const op& it)
{
  bool is_held = false;
  for (const pin_model& pin : model_.pins) is_held = is_held || pin.slot < model_.slots.size();
  const forecast expected = model_.inside || is_held ? refused : forecast{.config = true};
  prepare(expected);
  before_ = subject_->seen();
  script_ = it.y;
  figures need;
  const answer result = subject_->rehearse(*this, need);
  judge(expected, result, "rehearse");
  expect(before_ == subject_->seen(), "a rehearsal moved something");
  compare_states();
  if (result.is == verdict::fine) {
    model_.learnt = true;
    expect(need.capacity[0] <= before_.capacity[0] && need.capacity[1] <= before_.capacity[1], "a rehearsal passed a step that does not fit");
  } else if (!expected.fine) {
    return;
  } else {
    model_.learnt = true;  // it was run
  }
}

/// The rehearsed step: pins without bytes, and a model of their states alone.
void machine::run()
{
  support::dice dice{script_};
  std::vector<state> states;
  for (const slot_model& it : model_.slots) states.push_back(it.now);
  std::vector<std::uint32_t> pins(states.size());
  std::vector<std::uint32_t> held;
  for (std::uint32_t left = dice.between(4, 20); left > 0; --left) rehearse_one(dice.below(1U << 31U), held, states, pins);
  const std::size_t leases = model_.leases.size();
  expect(subject_->pins() == held.size(), "the model lost count of the pins of a rehearsal");
  while (!held.empty()) subject_->release(held.size() - 1), held.pop_back();
  (void)leases;
}

void machine::rehearse_one(std::uint32_t roll, std::vector<std::uint32_t>& held, std::vector<state>& states, std::vector<std::uint32_t>& pins)
{
  const std::uint32_t at = (roll >> 4U) % static_cast<std::uint32_t>(states.size());
  const slot_model& it = slot(at);
  if (it.chunk == no_slot) return;
  const auto must_refuse = [&](const answer& got) {
    ++sum_->illegal;
    sum_->note_sentence(got.sentence);
    expect(got.is == verdict::usage, "a mistake in a rehearsal was not refused");
  };
  granted got;
  switch (roll % 16) {
    case 0: return must_refuse(subject_->exchange(2, 2));
    case 1: return must_refuse(subject_->rehearse(*this, before_));
    case 2: return must_refuse(subject_->use_profile(0, 1));
    case 3: {
      if (it.list != value_list) return;
      const bool may = next_of(states[at], event::drop) != illegal;
      const answer dropped = subject_->drop(it.tensor);
      if (!may) return must_refuse(dropped);
      expect(dropped.is == verdict::fine, "a drop in a rehearsal was refused");
      states[at] = state::free;
      return;
    }
    case 4:
    case 5:
    case 6: {
      if (held.empty()) return;
      const std::size_t which = (roll >> 16U) % held.size();
      const std::uint32_t pinned = held[which];
      subject_->release(which);
      held[which] = held.back();
      held.pop_back();
      if (--pins[pinned] == 0) states[pinned] = state::hold;
      return;
    }
    default: break;
  }
  if (it.list == gradient_list && model_.is_parameter(it.tensor) && slot(it.tensor).now == state::gradient) return;
  request wanted{.tensor = it.tensor, .list = it.list, .type = it.type, .how = static_cast<access>((roll >> 20U) % 3),
                 .at = (roll >> 24U) % 3 == 0 ? place::host : place::device};
  if (it.list != value_list) wanted.by = route::list;
  const answer result = subject_->acquire(wanted, got);
  if (states[at] == state::gradient) return must_refuse(result);
  expect(result.is == verdict::fine && got.data == nullptr, "a pin of a rehearsal was refused, or has bytes");
  expect(got.size == it.content.size(), "a pin of a rehearsal has another size than its tensor");
  states[at] = state::compute;
  ++pins[at];
  held.push_back(at);
}

}  // namespace differential
