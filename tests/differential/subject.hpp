// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "words.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace differential {

/// Work of a kernel: compares what it finds, then writes.
struct job {
  std::vector<std::byte> expected{};
  std::vector<std::byte> fresh{};
  void* wrong = nullptr;  ///< a counter of the machine, told once for each mismatch

  void run(std::byte* data) const noexcept;
};

/// A step that `rehearse` runs.
struct rehearsed_step {
  virtual void run() = 0;

 protected:
  ~rehearsed_step() = default;
};

/// Where the layout puts a slot: its chunk, counted over all lists, and the frames of that chunk.
struct slot_place {
  std::uint32_t chunk = no_slot;
  std::uint32_t frames = 1;
};

/// A manager under test with its backend. Pins and leases are numbered in the order in which they were made; an ended
/// one is removed by moving the last one into its place.
class subject {
 public:
  virtual ~subject() = default;
  [[nodiscard]] virtual bool is_addressable() const = 0;  ///< the calling thread can read the device
  [[nodiscard]] virtual std::uint32_t agents() const = 0;
  [[nodiscard]] virtual std::vector<slot_place> places() const = 0;  ///< by slot, from the layout alone
  [[nodiscard]] virtual std::vector<answer> declaration_mistakes() const = 0;

  [[nodiscard]] virtual std::size_t pins() const = 0;
  virtual answer acquire(const request& wanted, granted& got) = 0;
  virtual answer look(std::size_t pin, granted& got) = 0;
  virtual answer move_pin(std::size_t pin) = 0;
  virtual void release(std::size_t pin) = 0;
  /// on success the gradient's pin is the last one
  virtual answer gradient_of_pin(std::size_t pin, element kind, granted& got) = 0;
  virtual answer gradient(std::uint32_t tensor, element kind, std::uint32_t agent, granted& got) = 0;
  virtual answer done_with_pin(std::size_t pin) = 0;
  virtual answer done(std::uint32_t tensor, std::uint32_t agent) = 0;
  virtual answer drop(std::uint32_t tensor) = 0;
  virtual answer drop_gradient(std::uint32_t tensor) = 0;
  virtual answer drop_gradients() = 0;

  virtual answer step(const step_request& wanted, stepped& got) = 0;
  virtual answer finish_updates() = 0;
  virtual void end_late() = 0;  ///< the object that does what waits ends
  virtual answer begin_load() = 0;
  virtual void end_load() = 0;

  virtual answer lease(bool on_host, std::uint64_t size, std::uint32_t agent, granted& got) = 0;
  virtual void end_lease(std::size_t index) = 0;
  virtual void launch(std::uint32_t agent, std::byte* data, const job& work) = 0;
  virtual void drain() = 0;

  virtual answer begin(std::uint32_t name, std::uint32_t micro_batches) = 0;
  virtual answer pass_to(pass during, std::uint32_t micro_batch) = 0;
  virtual answer end() = 0;
  virtual void abandon() = 0;
  virtual void keep_record() = 0;
  virtual answer exchange(std::uint32_t left, std::uint32_t right) = 0;
  virtual answer rehearse(rehearsed_step& step, figures& need) = 0;
  virtual answer use_profile(std::uint32_t from, std::uint32_t to) = 0;
  [[nodiscard]] virtual bool has_profile(std::uint32_t name) = 0;
  virtual answer mistake(std::uint32_t which) = 0;

  [[nodiscard]] virtual figures seen() const = 0;
  [[nodiscard]] virtual state state_of(std::uint32_t tensor) = 0;
  [[nodiscard]] virtual bool is_filled(std::uint32_t tensor, std::uint32_t list) = 0;
  [[nodiscard]] virtual bool waits(std::uint32_t tensor) = 0;  ///< its update is still to be done
  [[nodiscard]] virtual bool is_guessed() const = 0;           ///< a step that early updates began is not decided yet
  [[nodiscard]] virtual bool is_measured(std::uint32_t tensor) = 0;
  [[nodiscard]] virtual place place_of_update(std::uint32_t tensor) = 0;
  [[nodiscard]] virtual bool has_drifted() const = 0;
  [[nodiscard]] virtual std::vector<std::string> faults() = 0;
};

inline constexpr std::uint32_t mistake_count = 24;   ///< that `subject::mistake` knows
inline constexpr std::uint32_t config_mistakes = 4;  ///< the last ones of them are settings that cannot work

// One function for each kind of manager; each is compiled by itself.
[[nodiscard]] std::unique_ptr<subject> on_adversarial(const setting& wanted);
[[nodiscard]] std::unique_ptr<subject> on_host_arena(const setting& wanted);
[[nodiscard]] std::unique_ptr<subject> on_fake_cuda(const setting& wanted);
[[nodiscard]] std::unique_ptr<subject> on_lenient_rules(const setting& wanted);
[[nodiscard]] std::unique_ptr<subject> on_lost_pin(const setting& wanted);
[[nodiscard]] std::unique_ptr<subject> make_subject(const setting& wanted);

}  // namespace differential
