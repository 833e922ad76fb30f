// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model.hpp"
#include "subject.hpp"
#include "tally.hpp"
#include "words.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

namespace differential {

/// Makes each call on a manager and on the plain model, and compares the results, the states and the bytes.
class machine final : rehearsed_step {
 public:
  machine(const setting& wanted, tally& sum);
  ~machine();
  machine(const machine&) = delete;

  /// @throws divergence   the manager's result differs from the model's
  void run(const op& it);
  /// Ends everything and reads every tensor in both tiers.
  void finish();

 private:
  // Pins.
  void acquire(const op& it);
  void release(std::size_t pin);
  void touch(std::size_t pin, std::uint32_t number);
  void move_pin(std::size_t pin);
  void audit();
  [[nodiscard]] request request_of(const op& it) const;
  bool hold(const request& wanted, granted& got);
  void work(std::size_t pin, std::uint32_t number, bool reads);
  void launch(std::uint32_t slot, std::uint32_t agent, std::byte* data, bool reads, bool is_writing);
  void settle_kernels(std::uint32_t slot);
  void look_at(std::size_t pin, std::string_view when);
  [[nodiscard]] bool is_lost(std::uint32_t slot, access how) const;

  // Gradients.
  void gradient_of_pin(const op& it);
  void gradient(const op& it);
  void opened(std::uint32_t tensor, std::uint32_t agent, const granted& got, std::uint32_t number, bool first);
  void done_with_pin(const op& it);
  void done(const op& it);
  void update(const op& it);
  bool hold_for_update(std::uint32_t tensor, place where);
  void write_update(std::uint32_t tensor, std::size_t first);
  void drop(const op& it);
  void drop_gradient(std::uint32_t tensor);
  void drop_gradients();

  // Steps.
  void step(const op& it, updates how);
  [[nodiscard]] bool may_step() const;
  void release_parameters();
  void spoil(std::uint32_t roll);
  [[nodiscard]] step_request step_of(const op& it, updates how) const;
  bool take(step_request wanted, stepped& got);
  [[nodiscard]] bool lacks_lists() const;
  void stepped_to(const step_request& wanted, const stepped& got);
  void finish_updates();
  void see_what_waits();
  void end_late();
  void must_be_ended(const answer& got);
  bool load();
  bool load_tensor(std::uint32_t tensor);
  [[nodiscard]] std::uint64_t update_bytes() const;

  // The rest.
  void lease(const op& it);
  void end_lease(std::size_t index);
  void begin(const op& it);
  void pass_to(const op& it);
  void end(bool abandoned);
  void end_short();
  void exchange(const op& it);
  void rehearse(const op& it);
  void use_profile(const op& it);
  void mistake(const op& it);
  void release_all();
  void find_masters();

  // A rehearsed step.
  struct rehearsal;
  void run() override;
  void must_refuse(const answer& got);
  void rehearse_mistake(std::uint32_t kind);
  void rehearse_drop(rehearsal& all, std::uint32_t index);
  void rehearse_release(rehearsal& all, std::uint32_t number);
  void rehearse_acquire(rehearsal& all, std::uint32_t index, std::uint32_t roll);

  // Comparing.
  void prepare(const forecast& expected);
  void judge(const forecast& expected, const answer& got, std::string_view call, std::uint64_t slack = 0);
  void judge_shortage(const answer& got, std::string_view call, std::uint64_t slack);
  void compare_states();
  void compare_figures();
  void expect(bool right, std::string_view what);
  /// The manager under test, about to be asked for something: the operation of the program counts as made. Looking at
  /// it does not.
  [[nodiscard]] subject& made();
  [[nodiscard]] slot_model& slot(std::uint32_t index) { return model_.slots[index]; }

  setting setting_;
  tally* sum_;
  std::atomic<std::uint32_t> wrong_{0};  // kernels that found other bytes
  std::deque<job> jobs_;                 // of kernels that may still run
  std::unique_ptr<subject> subject_;
  plain_model model_;
  figures before_{};
  bool is_prepared_ = false;
  std::uint32_t number_ = 0;  // of the last contents written
  std::uint32_t script_ = 0;  // of the rehearsed step
  bool waited_ = false;       // updates waited when the call was made: it may have done them before, or failed to
  bool is_over_ = false;      // a step has no room, now or later: nothing can follow
  std::string_view call_;
  what counted_ = what::acquire;
  bool is_counted_ = true;
};

/// Runs a program to its end. @return   what differed, or nothing
[[nodiscard]] std::string run_program(const setting& wanted, const program& calls, tally& sum);
/// The same; `reached` is the number of calls that were made.
[[nodiscard]] std::string run_program(const setting& wanted, const program& calls, tally& sum, std::size_t& reached);

}  // namespace differential
