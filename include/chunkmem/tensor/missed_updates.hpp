// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

/// The updates that each tensor of a model has missed: counted steps in which the tensor had no gradient.
///
///     missed_updates missed;
///     missed.make_room(10);  // before the first step
///     missed.begin();        // a step is decided
///     missed.note(7);        // it has no gradient of tensor 7
///     missed.end();          // the step counts
///     const std::uint64_t updates_of_7 = steps - missed.of(7);
///
/// Tensors have the numbers of their declaration in the whole model, so one rank and many ranks have the same table. A
/// checkpoint holds the numbers that are not zero. Cost: 12 B for each tensor, which `make_room` allocates.
class missed_updates {
 public:
  /// The missed updates of a tensor; 0 for a tensor without a place.
  [[nodiscard]] std::uint64_t of(std::uint32_t tensor) const noexcept
  {
    return tensor < counts_.size() ? counts_[tensor] : 0;
  }
  /// The missed updates by tensor, up to the last tensor with a place.
  [[nodiscard]] std::span<const std::uint64_t> all() const noexcept { return counts_; }

  /// The tensors below this number have a place. Guarantee: strong. @throws std::bad_alloc
  void make_room(std::size_t tensors)
  {
    now_.reserve(std::max(tensors, counts_.size()));  // a copy of another object has no room here
    if (tensors > counts_.size()) counts_.resize(tensors);
  }
  /// @pre the tensor has a place. The address is valid until `make_room` is called for more
  [[nodiscard]] std::span<std::byte> bytes_of(std::uint32_t tensor) noexcept
  {
    return std::as_writable_bytes(std::span{&counts_[tensor], 1});
  }

  /// Begins a step, in which no tensor is noted yet. Discards a step that did not end.
  void begin() noexcept { now_.clear(); }
  /// A tensor misses this step, if the step counts. @pre it has a place, and was not noted in this step
  void note(std::uint32_t tensor) noexcept { now_.push_back(tensor); }
  /// The step counts.
  void end() noexcept
  {
    for (const std::uint32_t tensor : now_) ++counts_[tensor];
    now_.clear();
  }

 private:
  std::vector<std::uint64_t> counts_;  // by tensor
  std::vector<std::uint32_t> now_;     // tensors that miss the present step
};

}  // namespace chunkmem::inline v0
