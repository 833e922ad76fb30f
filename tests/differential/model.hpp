// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contents.hpp"
#include "plan.hpp"
#include "subject.hpp"
#include "tally.hpp"
#include "words.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace differential {

/// The possible results of a call.
struct forecast {
  bool fine = true;
  bool usage = false;
  bool memory = false;  ///< where copies may fail a device_error too
  bool config = false;
};
inline constexpr forecast refused{.fine = false, .usage = true};
inline constexpr forecast allowed{.memory = true};
inline constexpr forecast doubtful{.usage = true, .memory = true};  ///< what decides is the manager's own business

/// One tensor in one list.
struct slot_model {
  std::uint32_t tensor = 0;
  std::uint32_t list = value_list;
  element type = element::real;
  std::uint32_t chunk = no_slot;  ///< none: the tensor is not in this list
  std::uint32_t own_chunk = no_slot;
  bool starts_at_zero = false;
  bool is_defined = true;  ///< what it holds is known
  state now = state::free;
  std::uint32_t pins = 0;
  std::uint32_t kernel_uses = 0;  ///< so many kernels were started on it
  std::vector<std::byte> content{};
};
struct chunk_model {
  std::uint32_t frames = 1;
  std::uint32_t pins[2] = {};  ///< by tier
  std::uint32_t writers[2] = {};
};
struct pin_model {
  std::uint32_t slot = 0;
  std::uint32_t chunk = 0;
  access how = access::read;
  place at = place::device;
  std::uint32_t agent = on_caller;
  bool writing = false;  ///< also where the first use of zeros made it so
  bool is_gradient = false;
  bool is_bytes = false;
  std::uint32_t kernel_uses = 0;  ///< of the slot when it was made
  std::byte* data = nullptr;
};
struct lease_model {
  bool on_host = false;
  std::uint64_t size = 0;
  std::uint32_t agent = on_caller;
  std::byte* data = nullptr;
  std::uint8_t value = 0;
};

/// A manager as its documentation describes it: vectors of bytes, states and counts. Nothing here moves.
class plain_model {
 public:
  plain_model(const setting& wanted, const std::vector<slot_place>& places, tally& sum);

  [[nodiscard]] std::uint32_t slot_of(std::uint32_t tensor, std::uint32_t list) const noexcept;
  [[nodiscard]] std::uint32_t tensors() const noexcept { return static_cast<std::uint32_t>(plan_.tensors.size()); }
  [[nodiscard]] std::uint32_t lists() const noexcept { return static_cast<std::uint32_t>(plan_.lists.size()) + 2; }
  [[nodiscard]] bool is_parameter(std::uint32_t tensor) const noexcept { return tensor < plan_.parameters; }
  [[nodiscard]] std::uint32_t parameters() const noexcept { return plan_.parameters; }
  [[nodiscard]] const plan& planned() const noexcept { return plan_; }
  [[nodiscard]] std::uint32_t master_of(std::uint32_t tensor) const noexcept;  ///< its slot, or none
  [[nodiscard]] bool has_masters() const noexcept { return has_masters_; }
  /// A number for this micro-batch of this iteration.
  [[nodiscard]] std::uint64_t moment() const noexcept { return 2 * begun + batch + 1; }
  /// The iteration that runs has not named all of its micro-batches.
  [[nodiscard]] bool expects_more() const noexcept { return inside && micro_batches > 1 && named != 3; }
  /// A step now would be of a part of a batch.
  [[nodiscard]] bool is_in_part() const noexcept { return expects_more() && named != 0 && opened == begun; }
  /// Micro-batches of one iteration add up; otherwise nothing is added to a gradient that is done.
  [[nodiscard]] bool is_open(std::uint32_t tensor) const noexcept
  {
    const std::uint64_t other = moment() % 2 == 1 ? moment() + 1 : moment() - 1;  // of the same iteration
    return done[tensor] == 0 || done[tensor] == other;
  }
  /// The gradient of this parameter may come to lie in the weight's place.
  [[nodiscard]] bool may_lie_in_place(std::uint32_t tensor) const noexcept
  {
    return in_place_ && learnt && master_of(tensor) != no_slot;
  }

  // What may come of a call, by the rules alone.
  [[nodiscard]] forecast of_acquire(const request& it, std::uint32_t agents) const;
  /// a gradient, before its pin
  [[nodiscard]] forecast of_opening(std::uint32_t tensor, element type, std::uint32_t pins) const;
  [[nodiscard]] forecast of_gradient_pin(std::uint32_t tensor) const;  ///< the pin itself
  [[nodiscard]] forecast of_clash(std::uint32_t chunk, place at, bool writing) const;
  [[nodiscard]] forecast of_exchange(std::uint32_t left, std::uint32_t right) const;
  [[nodiscard]] forecast of_drop_gradient(std::uint32_t tensor, place update) const;

  // What a call does.
  void step(slot_model& it, event what);
  void pinned(std::uint32_t slot, const pin_model& made);
  void unpinned(std::size_t pin);
  void first_gradient(std::uint32_t tensor, bool in_place);
  void weight_written(std::uint32_t tensor);
  void dropped(std::uint32_t slot);
  void gradient_dropped(std::uint32_t tensor, bool restored);
  void master_made(std::uint32_t tensor);
  void exchanged(std::uint32_t left, std::uint32_t right);
  /// A step updated this parameter. @param waits   its bytes get the update when they are used
  void updated(std::uint32_t tensor, float factor, bool waits);
  void iteration_ended();

  /// The bytes that cannot leave the device now, and the number of pieces they are in.
  [[nodiscard]] std::uint64_t stuck_on_device() const noexcept;
  [[nodiscard]] std::uint32_t pieces_on_device() const noexcept;
  /// No less than what cannot leave the host.
  [[nodiscard]] std::uint64_t stuck_on_host() const noexcept;
  [[nodiscard]] std::uint32_t pieces_on_host() const noexcept;

  std::vector<slot_model> slots;
  std::vector<chunk_model> chunks;
  std::vector<pin_model> pins;
  std::vector<lease_model> leases;
  std::vector<std::uint64_t> done;     ///< by parameter: when gradient_done was called, see moment; 0: it is open
  std::vector<std::uint8_t> measured;  ///< by parameter: and took norms
  std::vector<std::uint8_t> waits;     ///< by parameter: its update, which counts here already
  std::uint64_t updates = 0;           ///< steps that updated
  bool inside = false;
  bool exceptional = false;  ///< keep_record was called
  bool masters_wanted = true;
  bool learnt = false;  ///< an iteration or rehearsal showed which gradients may lie in place
  std::uint32_t micro_batches = 1;
  std::uint32_t named = 0;   ///< micro-batches of this iteration that a pass named, a bit for each
  std::uint32_t batch = 0;   ///< of these, named last
  std::uint64_t begun = 0;   ///< iterations
  std::uint64_t opened = 0;  ///< the number of the iteration in, or behind, which a gradient was opened last
  std::uint32_t name = 0;
  bool recorded[3] = {};
  std::uint64_t iterations = 0;

 private:
  void used(std::uint32_t slot);  ///< a pin came and went
  void give_back(std::uint32_t chunk, place at, bool writing) noexcept;

  plan plan_;
  tally* sum_;
  std::uint64_t frame_;
  bool in_place_;
  bool has_masters_;
};

}  // namespace differential
