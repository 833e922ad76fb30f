// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace checks {

/// The micro-batches of an iteration in which each gradient was opened. A forgotten gradient of a micro-batch leaves no
/// trace in the bytes: the sum is that of a part of the batch.
///
///     micro_batch_watch watch;
///     watch.opened(weight, 0, 4);
///     const auto seen = watch.seen(weight);  // 1 of 4
///
/// A gradient that was opened only in the last micro-batch was accumulated elsewhere by its trainer, and is no mistake.
/// Numbers only: this class knows no manager. Cost: 8 B for each parameter and 64 micro-batches.
class micro_batch_watch {
 public:
  struct count {
    std::uint32_t opened = 0;
    std::uint32_t expected = 0;  ///< 0: unknown

    [[nodiscard]] bool is_short() const noexcept { return opened < expected; }
  };

  /// @param of   number of micro-batches   @throws std::bad_alloc
  void opened(std::size_t parameter, std::uint32_t micro_batch, std::uint32_t of)
  {
    if (parameter >= notes_.size()) notes_.resize(parameter + 1);
    note& it = notes_[parameter];
    it.expected = of;
    it.opened.resize((of + bits - 1) / bits, 0);
    if (micro_batch >= of) return exempt(parameter);  // no pass was named
    it.opened[micro_batch / bits] |= std::uint64_t{1} << micro_batch % bits;
  }
  /// Exempts a gradient whose bytes come from elsewhere, as a sum that was made before. @throws std::bad_alloc
  void exempt(std::size_t parameter)
  {
    if (parameter >= notes_.size()) notes_.resize(parameter + 1);
    notes_[parameter].is_exempt = true;
  }
  /// Forgets a gradient that was used up or dropped.
  void forget(std::size_t parameter) noexcept
  {
    if (parameter >= notes_.size()) return;
    notes_[parameter].opened.clear();
    notes_[parameter].is_exempt = false;
    notes_[parameter].expected = 0;
  }
  [[nodiscard]] count seen(std::size_t parameter) const noexcept
  {
    if (parameter >= notes_.size() || notes_[parameter].is_exempt) return {};
    const note& it = notes_[parameter];
    count found{0, it.expected};
    for (std::uint64_t word : it.opened)
      for (; word != 0; word &= word - 1) ++found.opened;
    const std::uint32_t last = it.expected == 0 ? 0 : it.expected - 1;
    const bool has_last = !it.opened.empty() && (it.opened[last / bits] >> last % bits & 1U) != 0;
    return found.opened == 1 && has_last ? count{} : found;
  }

 private:
  static constexpr std::uint32_t bits = 64;
  struct note {
    std::vector<std::uint64_t> opened{};
    std::uint32_t expected = 0;
    bool is_exempt = false;
  };

  std::vector<note> notes_;
};

}  // namespace checks

}  // namespace chunkmem::inline v0
