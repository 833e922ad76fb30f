// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <support/sanitized.hpp>

#include <algorithm>
#include <cstring>

namespace differential {

void job::run(std::byte* data) const noexcept
{
  if (!expected.empty() && std::memcmp(data, expected.data(), expected.size()) != 0)
    static_cast<std::atomic<std::uint32_t>*>(wrong)->fetch_add(1, std::memory_order_relaxed);
  if (!fresh.empty()) std::memcpy(data, fresh.data(), fresh.size());
}

std::unique_ptr<subject> make_subject(const setting& wanted)
{
  switch (wanted.where) {
    case world::adversarial: return on_adversarial(wanted);
    case world::host_arena: return on_host_arena(wanted);
    case world::fake_cuda: return on_fake_cuda(wanted);
    default: break;
  }
  if constexpr (!support::sanitized)
    return wanted.where == world::lost_pin ? on_lost_pin(wanted) : on_lenient_rules(wanted);
  return nullptr;
}

machine::machine(const setting& wanted, tally& sum)
    : setting_{wanted}, sum_{&sum}, subject_{make_subject(wanted)}, model_{wanted, subject_->places(), sum}
{
  for (const answer& it : subject_->declaration_mistakes()) {
    expect(it.is == verdict::usage, "a wrong declaration was not refused");
    sum_->note_sentence(it.sentence);
  }
}

machine::~machine()
{
  subject_.reset();
}  // before the jobs of its kernels

void machine::expect(bool right, std::string_view what)
{
  if (right) return;
  std::string text{call_};
  throw divergence{text.append(": ").append(what)};
}

subject& machine::made()
{
  if (!is_counted_) {
    ++sum_->operations;
    ++sum_->calls[static_cast<std::size_t>(counted_)];
  }
  is_counted_ = true;
  return *subject_;
}

void machine::run(const op& it)
{
  if (is_over_) return;
  call_ = what_names[static_cast<std::size_t>(it.call)];
  ++sum_->rolled;
  counted_ = it.call;
  is_counted_ = false;
  const auto any_pin = [&] { return it.x % model_.pins.size(); };
  const bool has_pins = !model_.pins.empty();
  switch (it.call) {
    case what::acquire: acquire(it); break;
    case what::release:
      if (has_pins) release(any_pin());
      break;
    case what::touch:
      if (has_pins) touch(any_pin(), it.y);
      break;
    case what::move_pin:
      if (has_pins) move_pin(any_pin());
      break;
    case what::gradient_of_pin: gradient_of_pin(it); break;
    case what::gradient: gradient(it); break;
    case what::done_with_pin: done_with_pin(it); break;
    case what::done: done(it); break;
    case what::update: update(it); break;
    case what::drop: drop(it); break;
    case what::drop_gradient: drop_gradient(it.x % (model_.tensors() + 2)); break;
    case what::drop_gradients: drop_gradients(); break;
    case what::lease: lease(it); break;
    case what::end_lease:
      if (!model_.leases.empty()) end_lease(it.x % model_.leases.size());
      break;
    case what::begin: begin(it); break;
    case what::pass: pass_to(it); break;
    case what::end: end(false); break;
    case what::abandon: end(true); break;
    case what::keep_record: made().keep_record(), model_.exceptional = model_.inside; break;
    case what::exchange: exchange(it); break;
    case what::rehearse: rehearse(it); break;
    case what::use_profile: use_profile(it); break;
    case what::audit: audit(); break;
    case what::release_all: release_all(); break;
    case what::mistake: mistake(it); break;
    case what::step: step(it, updates::at_once); break;
    case what::late_step: step(it, updates::late); break;
    case what::early_step: step(it, updates::early); break;
    case what::finish_updates: finish_updates(); break;
    case what::end_late: end_late(); break;
  }
  if (is_over_) return;
  see_what_waits();
  compare_figures();
  compare_states();
}

void machine::finish()
{
  call_ = "at the end";
  is_counted_ = true;  // no operations of the program
  if (!is_over_) {
    if (model_.inside) end(false);
    release_all();
    audit();
    see_what_waits();
    compare_states();
  }
  subject_->drain();
  compare_figures();
  for (const std::string& fault : subject_->faults()) expect(false, fault);
  sum_->loads += subject_->seen().moved[2];
}

// Comparing.

void machine::prepare(const forecast& expected)
{
  waited_ = std::find(model_.waits.begin(), model_.waits.end(), 1) != model_.waits.end();
  is_prepared_ = expected.usage || expected.config;
  if (is_prepared_) before_ = subject_->seen();
}

void machine::judge(const forecast& expected, const answer& got, std::string_view call, std::uint64_t slack)
{
  if (got.is != verdict::fine) sum_->note_sentence(got.sentence);
  const bool by_updates =
      waited_ && (got.is == verdict::memory || (got.is == verdict::device && setting_.faults > 0) ||
                  (got.is == verdict::usage && got.sentence.find(" is in use on the ") != std::string::npos));
  const bool right = by_updates                  ? true
                     : got.is == verdict::fine   ? expected.fine
                     : got.is == verdict::usage  ? expected.usage
                     : got.is == verdict::config ? expected.config
                     : got.is == verdict::memory ? expected.memory
                                                 : got.is == verdict::device && expected.memory && setting_.faults > 0;
  if (!right) {
    std::string text{call};
    text.append(" gave ").append(verdict_names[static_cast<int>(got.is)]).append(" where the model allows");
    if (expected.fine) text.append(" success");
    if (expected.usage) text.append(" usage_error");
    if (expected.config) text.append(" config_error");
    if (expected.memory) text.append(" out_of_memory");
    expect(false, text.append("; ").append(got.sentence));
  }
  if (got.is == verdict::usage || got.is == verdict::config) {
    ++sum_->illegal;
    expect(waited_ || (is_prepared_ && before_ == subject_->seen()), "a call that was refused left other figures");
  }
  if (got.is == verdict::memory) judge_shortage(got, call, waited_ ? slack + update_bytes() : slack);
}

/// Out of memory is right only where what cannot leave is in the way.
void machine::judge_shortage(const answer& got, std::string_view call, std::uint64_t slack)
{
  ++sum_->shortages;
  const figures now = subject_->seen();
  expect(got.requested > 0 && got.capacity == now.capacity[got.on_host ? 1 : 0],
         "a shortage with other numbers than the tier's");
  expect(got.needed > got.capacity && got.pinned <= got.capacity, "a shortage that says that there is room");
  const std::uint64_t frame = setting_.frame;
  std::uint64_t stuck = got.on_host ? model_.stuck_on_host() : model_.stuck_on_device();
  if (!got.on_host && slack == 0)
    expect(got.pinned == stuck, "a shortage that names other pinned bytes than there are");
  std::uint64_t pieces = got.on_host ? model_.pieces_on_host() : model_.pieces_on_device();
  stuck += slack + model_.leases.size() * 2 * frame;  // a lease spoils the frames that it touches
  const bool is_window = got.requested != frame;
  if (slack > 0) pieces += 2;
  const std::uint64_t spoilt = is_window ? (pieces + 1) * (got.requested + frame) : got.requested + frame;
  std::string text{call};
  expect(stuck + spoilt > got.capacity,
         text.append(" ran out of memory although there is room; ").append(got.sentence));
}

void machine::compare_figures()
{
  const figures now = subject_->seen();
  for (const int where : {0, 1}) {
    expect(now.in_use[where] <= now.capacity[where], "more bytes in use than the capacity");
    expect(now.peak[where] <= now.capacity[where] && now.in_use[where] <= now.peak[where], "a peak that cannot be");
  }
  expect(now.in_use[0] >= model_.stuck_on_device(), "pins and leases hold more bytes than are in use");
  expect(now.iterations == model_.iterations, "another number of iterations");
  expect(wrong_.load(std::memory_order_relaxed) == 0, "a kernel found other bytes than the model has");
}

void machine::compare_states()
{
  for (std::uint32_t tensor = 0; tensor < model_.tensors(); ++tensor) {
    if (model_.is_parameter(tensor) && model_.waits[tensor] != 0) continue;
    expect(subject_->state_of(tensor) == slot(model_.slot_of(tensor, value_list)).now,
           "a tensor is in another state than the model's");
    if (!model_.is_parameter(tensor)) continue;
    for (std::uint32_t list = 1; list < model_.lists(); ++list) {
      const std::uint32_t index = model_.slot_of(tensor, list);
      if (index != no_slot)
        expect(subject_->is_filled(tensor, list) == (slot(index).now != state::free),
               "a list is filled where the model's is not, or not where it is");
    }
    expect(subject_->is_measured(tensor) == (model_.measured[tensor] != 0),
           "norms of a gradient are there or not, unlike the model's");
  }
}

std::string run_program(const setting& wanted, const program& calls, tally& sum)
{
  std::size_t reached = 0;
  return run_program(wanted, calls, sum, reached);
}

std::string run_program(const setting& wanted, const program& calls, tally& sum, std::size_t& reached)
{
  try {
    machine it{wanted, sum};
    for (reached = 0; reached < calls.size(); ++reached) it.run(calls[reached]);
    it.finish();
    return {};
  } catch (const divergence& found) {
    return found.text;
  }
}

}  // namespace differential
