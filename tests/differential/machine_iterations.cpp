// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <cstring>
#include <string>
#include <vector>

namespace differential {

namespace {

constexpr std::size_t most_leases = 3;

}  // namespace

void machine::lease(const op& it)
{
  if (model_.leases.size() >= most_leases) return;
  const bool on_host = it.x % 5 == 0;
  const std::uint64_t size = 1 + it.y % (on_host ? setting_.frame : 3 * setting_.frame);
  const std::uint32_t agent =
      !on_host && ((it.y >> 20U & 1U) != 0 || !subject_->is_addressable()) ? on_compute : on_caller;
  prepare(allowed);
  granted got;
  const answer result = made().lease(on_host, size, agent, got);
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

void machine::end_lease(std::size_t index)
{
  const lease_model it = model_.leases[index];
  const std::vector<std::byte> content(it.size, std::byte{it.value});
  if (it.agent == on_caller) {
    expect(std::memcmp(it.data, content.data(), content.size()) == 0, "a lease holds other bytes than were written");
  } else {
    job& work = jobs_.emplace_back();
    work.wrong = &wrong_;
    work.expected = content;
    subject_->launch(it.agent, it.data, work);
  }
  made().end_lease(index);
  model_.leases[index] = model_.leases.back();
  model_.leases.pop_back();
}

void machine::begin(const op& it)
{
  const std::uint32_t micro_batches = it.y % 8 == 0 ? 2 : 1;
  forecast expected{.fine = true, .memory = setting_.faults > 0};
  if (model_.inside) expected = refused;
  bool makes_masters = false;
  for (std::uint32_t index = 0; index < model_.parameters() && model_.masters_wanted && !model_.inside; ++index) {
    const std::uint32_t master = model_.master_of(index);
    if (master == no_slot || slot(master).now != state::free || slot(index).now == state::free) continue;
    makes_masters = expected.memory = true;
    if (slot(index).pins > 0) expected = {.fine = false, .usage = true, .memory = true};
    const place update = subject_->place_of_update(index);
    const forecast read = model_.of_clash(slot(index).chunk, update, false);
    const forecast write = model_.of_clash(slot(master).chunk, update, true);
    if (!read.fine || !write.fine)
      expected = {.fine = false, .usage = true, .memory = true};
    else if (read.usage || write.usage)
      expected.usage = true;
  }
  if (micro_batches > 1 && setting_.in_place) expected = {.fine = false, .config = true};
  prepare(expected);
  const answer result = made().begin(it.x % 3, micro_batches);
  if (makes_masters && result.is == verdict::usage && !waited_) {
    sum_->note_sentence(result.sentence);
    expect(expected.usage, "an iteration was refused; " + result.sentence);
  } else {
    judge(expected, result, "iteration", makes_masters ? 8 * setting_.frame : 0);
  }
  if (result.is != verdict::fine) return;  // no master is left of it
  if (model_.masters_wanted) find_masters();
  model_.inside = true;
  model_.masters_wanted = false;
  model_.micro_batches = micro_batches;
  model_.named = 0;
  model_.batch = 0;
  ++model_.begun;
  model_.name = it.x % 3;
  before_ = subject_->seen();
}

/// Masters that were made when an iteration began.
void machine::find_masters()
{
  for (std::uint32_t index = 0; index < model_.parameters(); ++index) {
    const std::uint32_t master = model_.master_of(index);
    if (master == no_slot || slot(master).now != state::free || slot(index).now == state::free) continue;
    expect(subject_->is_filled(index, 2), "an iteration began without a master of a weight that was written");
    model_.master_made(index);
  }
}

void machine::pass_to(const op& it)
{
  if (!model_.inside) return;
  const auto next = static_cast<pass>(it.x % 3);
  const std::uint32_t micro_batch = it.y % 4 == 0 ? 2 : it.y % model_.micro_batches;
  const forecast expected = micro_batch < model_.micro_batches ? forecast{} : refused;
  prepare(expected);
  const answer result = made().pass_to(next, micro_batch);
  judge(expected, result, "pass");
  if (result.is != verdict::fine) return;
  model_.named |= 1U << micro_batch;
  model_.batch = micro_batch;
}

void machine::end(bool abandoned)
{
  if (!model_.inside) return;
  const bool is_short = model_.micro_batches > 1 && model_.named != 3;
  if (abandoned)
    made().abandon();
  else if (is_short)
    end_short();
  else
    judge({}, made().end(), "end of an iteration");
  const bool is_kept = abandoned || is_short || model_.exceptional;
  const bool was_known = model_.recorded[model_.name];
  if (!is_kept) model_.recorded[model_.name] = model_.learnt = true;
  model_.iteration_ended();
  expect(subject_->has_profile(model_.name) == model_.recorded[model_.name],
         "an iteration was recorded, or not, unlike the model");
  if (is_kept) return;
  const bool is_repeat = was_known && !subject_->has_drifted();
  ++(is_repeat ? sum_->repeated : sum_->diverged);
}

/// It ends, and says that it was not what it was begun as.
void machine::end_short()
{
  const answer result = made().end();
  sum_->note_sentence(result.sentence);
  expect(result.is == verdict::usage, "an iteration ended that had named too few micro-batches");
}

void machine::exchange(const op& it)
{
  const std::uint32_t left = it.x % (model_.lists() + 1);
  const std::uint32_t right = it.y % (model_.lists() + 1);
  const forecast expected = model_.of_exchange(left, right);
  prepare(expected);
  const answer result = made().exchange(left, right);
  judge(expected, result, "exchange");
  if (result.is == verdict::fine) model_.exchanged(left, right);
}

void machine::use_profile(const op& it)
{
  const std::uint32_t from = it.x % 3;
  const std::uint32_t to = it.y % 3;
  if (!model_.recorded[from]) return;
  // Where an iteration diverged while a tensor was pinned in both tiers its record may name the wrong one of two
  // releases, and is then refused as a profile.
  const bool may = !model_.inside && !model_.recorded[to];
  const forecast expected{.fine = may, .usage = !may, .config = true};
  prepare(expected);
  const answer result = made().use_profile(from, to);
  judge(expected, result, "use_profile");
  if (result.is == verdict::fine) model_.recorded[to] = true;
}

void machine::mistake(const op& it)
{
  const std::uint32_t which = it.x % mistake_count;
  const forecast expected = which + config_mistakes < mistake_count ? refused : forecast{.fine = false, .config = true};
  prepare(expected);
  judge(expected, made().mistake(which), "mistake " + std::to_string(which));
}

}  // namespace differential
