// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace differential {
namespace {

constexpr int most_tries = 60;

}  // namespace

/// Bytes that an update may hold at once, in a place that no model knows: at most five chunks.
std::uint64_t machine::update_bytes() const
{
  std::uint32_t frames = 1;
  for (const chunk_model& it : model_.chunks) frames = std::max(frames, it.frames);
  return std::uint64_t{5} * frames * setting_.frame;
}

/// Everything that the updates of these gradients read is known.
bool machine::may_step() const
{
  for (std::uint32_t tensor = 0; tensor < model_.parameters(); ++tensor) {
    const auto at = [&](std::uint32_t slot) -> const slot_model& { return model_.slots[slot]; };
    const slot_model& gradient = at(model_.slot_of(tensor, gradient_list));
    if (gradient.now == state::free) continue;
    const slot_model& weight = at(tensor);
    const std::uint32_t master = model_.master_of(tensor);
    const bool has_master = master != no_slot && at(master).now != state::free;
    if (!gradient.is_defined || weight.now == state::free || (!has_master && !weight.is_defined)) return false;
    for (std::uint32_t list = 2; list < model_.lists(); ++list)
      if (const std::uint32_t slot = model_.slot_of(tensor, list);
          slot != no_slot && at(slot).now != state::free && !at(slot).is_defined)
        return false;
  }
  return true;
}

void machine::release_parameters()
{
  for (std::size_t pin = model_.pins.size(); pin-- > 0;)
    if (model_.is_parameter(slot(model_.pins[pin].slot).tensor)) release(pin);
}

step_request machine::step_of(const op& it, updates how) const
{
  step_request wanted{.how = how};
  constexpr float limits[] = {0, 0, 0.75F, 100};
  wanted.limit = limits[it.x & 3U];
  wanted.skips_nonfinite = (it.x >> 2U & 7U) != 0;
  wanted.undo_bytes = (it.x >> 5U & 15U) * 512;
  for (std::uint32_t more = it.y & 3U, roll = it.y >> 2U; more > 0; --more, roll /= 8)
    wanted.first.push_back(roll % model_.parameters());
  if ((it.x >> 9U & 15U) == 0)
    wanted.first.push_back(model_.parameters() + it.y % (model_.tensors() + 2 - model_.parameters()));
  return wanted;
}

/// An infinity among the gradients, also of those that were measured: the step is to be skipped.
void machine::spoil(std::uint32_t roll)
{
  const std::uint32_t tensor = roll % model_.parameters();
  const std::uint32_t index = model_.slot_of(tensor, gradient_list);
  if (slot(index).now == state::free || !slot(index).is_defined) return;
  granted got;
  if (!hold({.by = route::bytes, .tensor = tensor, .list = gradient_list, .how = access::read_write, .at = place::host},
            got))
    return;
  const auto bits = std::uint32_t{0x7F800000U} >> (slot(index).type == element::brain ? 16U : 0U);
  std::memcpy(slot(index).content.data(), &bits, size_of(slot(index).type));
  std::memcpy(got.data, slot(index).content.data(), slot(index).content.size());
  release(model_.pins.size() - 1);
}

/// A step of the optimizer, which the model takes at once however the manager does.
void machine::step(const op& it, updates how)
{
  release_parameters();
  if (!may_step()) return;
  const step_request wanted = step_of(it, how);
  if (wanted.skips_nonfinite && (it.x >> 13U & 7U) == 0) spoil(it.y);
  if (!may_step()) return;
  stepped got;
  if (take(wanted, got)) stepped_to(wanted, got);
}

/// Calls a step until it is done. @return   false where it was refused, or will never be done
bool machine::take(step_request wanted, stepped& got)
{
  const bool is_known =
      std::all_of(wanted.first.begin(), wanted.first.end(), [&](std::uint32_t it) { return model_.is_parameter(it); });
  bool has_any = false;
  for (std::uint32_t tensor = 0; tensor < model_.parameters(); ++tensor)
    has_any = has_any || model_.slots[model_.slot_of(tensor, gradient_list)].now != state::free;
  const bool is_legal = has_any && !model_.is_in_part() && (is_known || wanted.how != updates::late);
  // what waits is done before gradients are looked for
  const forecast expected = is_legal ? allowed : forecast{.fine = false, .usage = true, .memory = !has_any};
  for (int tries = 0; tries < most_tries; ++tries) {
    prepare(expected);
    const answer result = made().step(wanted, got);
    judge(expected, result, "step", update_bytes() + wanted.undo_bytes + 2 * setting_.frame);
    if (result.is == verdict::fine) return true;
    if (result.is == verdict::usage) return false;
    release_all();
    if (wanted.how != updates::early || subject_->is_guessed()) continue;
    wanted.how = updates::at_once;  // there was no room to undo it, or it is decided
    subject_->keep_record();        // whichever it was
    model_.exceptional = model_.inside;
  }
  is_over_ = true;
  return false;
}

/// The step makes lists of a parameter, as the first one does.
bool machine::lacks_lists() const
{
  for (std::uint32_t tensor = 0; tensor < model_.parameters(); ++tensor) {
    if (model_.slots[model_.slot_of(tensor, gradient_list)].now == state::free) continue;
    for (std::uint32_t list = 2; list < model_.lists(); ++list)
      if (const std::uint32_t slot = model_.slot_of(tensor, list); slot != no_slot)
        if (model_.slots[slot].now == state::free) return true;
  }
  return false;
}

void machine::stepped_to(const step_request& wanted, const stepped& got)
{
  double norm = 0;
  bool is_finite = true;
  for (std::uint32_t tensor = 0; tensor < model_.parameters(); ++tensor) {
    const slot_model& gradient = slot(model_.slot_of(tensor, gradient_list));
    if (gradient.now == state::free) continue;
    for (const float it : numbers_of(gradient.content, gradient.type))
      norm = std::max(norm, std::fabs(static_cast<double>(it)));
  }
  is_finite = norm < std::numeric_limits<double>::infinity();
  const bool measures = wanted.skips_nonfinite || wanted.limit > 0;
  const bool updates_all = is_finite || !wanted.skips_nonfinite;
  const double factor = wanted.limit > 0 ? std::min(1.0, static_cast<double>(wanted.limit) / (norm + 1e-6)) : 1.0;
  expect(got.updated == updates_all, "a step was skipped, or not, unlike the model's");
  expect(got.norm == (measures ? norm : 0.0), "a step says another norm than the model's");
  const bool is_early = wanted.how == updates::early && measures && wanted.undo_bytes > 0;
  if (!updates_all || (is_early && (factor < 1.0 || lacks_lists()))) model_.exceptional = model_.inside;
  model_.updates += updates_all ? 1U : 0U;
  for (std::uint32_t tensor = 0; tensor < model_.parameters(); ++tensor) {
    const bool has_gradient = slot(model_.slot_of(tensor, gradient_list)).now != state::free;
    const bool waits = subject_->waits(tensor);
    expect(!waits || (wanted.how == updates::late && has_gradient && updates_all), "an update waits that should not");
    if (has_gradient && updates_all)
      model_.updated(tensor, static_cast<float>(factor), waits);
    else
      model_.gradient_dropped(tensor, true);
    slot_model& weight = slot(tensor);
    const bool is_undone = wanted.how == updates::early && has_gradient && weight.now != state::free;
    // A weight written as bytes is taken to be its master's, and may be made again from it.
    const std::uint32_t master = model_.master_of(tensor);
    if (is_undone && !updates_all && master != no_slot && slot(master).now != state::free &&
        weight.content != rounded(slot(master).content))
      weight.is_defined = false;
  }
}

void machine::finish_updates()
{
  prepare({});
  const answer result = made().finish_updates();
  judge({}, result, "finish");
  if (result.is != verdict::fine) return;
  for (std::uint32_t tensor = 0; tensor < model_.parameters(); ++tensor)
    expect(!subject_->waits(tensor), "an update still waits after finish");
}

/// Updates that waited and were done since.
void machine::see_what_waits()
{
  for (std::uint32_t tensor = 0; tensor < model_.parameters(); ++tensor)
    if (!subject_->waits(tensor)) model_.waits[tensor] = 0;
}

/// Whoever does what waits ends: nothing of it can be used until all of it is loaded.
void machine::end_late()
{
  if (model_.inside) return;
  release_parameters();
  see_what_waits();
  made().end_late();
  const auto waiting = std::find(model_.waits.begin(), model_.waits.end(), 1);
  if (waiting == model_.waits.end()) return;
  const auto tensor = static_cast<std::uint32_t>(waiting - model_.waits.begin());
  granted nothing;
  stepped never;
  const std::uint32_t list = model_.slot_of(tensor, 2) == no_slot ? 3 : 2;
  for (const std::uint32_t which : {value_list, list})
    must_be_ended(subject_->acquire({.by = route::bytes, .tensor = tensor, .list = which, .at = place::host}, nothing));
  must_be_ended(subject_->finish_updates());
  must_be_ended(subject_->drop_gradients());
  must_be_ended(subject_->step({}, never));
  is_over_ = !load();
}

void machine::must_be_ended(const answer& got)
{
  ++sum_->illegal;
  sum_->note_sentence(got.sentence);
  expect(got.is == verdict::usage && got.sentence.find("its late_updates ended before") != std::string::npos,
         "what waits for an update that nobody does was not refused; " + got.sentence);
}

/// As if a checkpoint was loaded that has what the updates would have given.
bool machine::load()
{
  std::vector<std::uint32_t> lost;
  for (std::uint32_t tensor = 0; tensor < model_.parameters(); ++tensor)
    if (model_.waits[tensor] != 0) lost.push_back(tensor);
  bool begins = false;
  for (int tries = 0; tries < most_tries && !begins; ++tries) {
    const answer result = subject_->begin_load();
    judge(allowed, result, "load", update_bytes());
    begins = result.is == verdict::fine;
    if (!begins) release_all();
  }
  if (!begins) return false;
  std::fill(model_.waits.begin(), model_.waits.end(), std::uint8_t{0});
  for (std::uint32_t tensor = 0; tensor < model_.parameters(); ++tensor) model_.gradient_dropped(tensor, true);
  for (const std::uint32_t it : lost)
    if (!load_tensor(it)) return false;
  subject_->end_load();
  return true;
}

bool machine::load_tensor(std::uint32_t tensor)
{
  for (std::uint32_t list = 0; list < model_.lists(); ++list) {
    const std::uint32_t index = model_.slot_of(tensor, list);
    if (list == gradient_list || index == no_slot) continue;
    granted got;
    bool holds = false;
    for (int tries = 0; tries < most_tries && !holds; ++tries)
      holds = hold({.by = route::bytes, .tensor = tensor, .list = list, .how = access::write, .at = place::host}, got);
    if (!holds) return false;
    std::memcpy(got.data, slot(index).content.data(), slot(index).content.size());
    release(model_.pins.size() - 1);
  }
  return true;
}

}  // namespace differential
