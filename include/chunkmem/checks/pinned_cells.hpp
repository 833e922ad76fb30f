// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checks/byte_poison.hpp>
#include <chunkmem/checks/call_place.hpp>
#include <chunkmem/tensor/access.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace checks {

/// The checksum of each tensor while nobody may write it: while pins only read it, and while no pin holds it.
///
///     pinned_cells cells;
///     cells.reset(1);
///     cells.pinned(0, content, false, from);
///     const bool is_fine = cells.released(0, content, true) == pinned_cells::finding::fine;
///
/// A cell is the bytes of a tensor in one list. A gradient that lies in its weight's bytes has the weight's cell.
/// Cost: one pass over the bytes for each first pin and each last release. Numbers and bytes only: it knows no manager.
class pinned_cells {
 public:
  /// What is wrong with a cell, if anything.
  enum class finding : std::uint8_t { fine, written_through_read, written_unpinned };

  void reset(std::size_t cells) { cells_.assign(cells, {}); }

  /// A pin begins. @pre   `compare` was called where the bytes were not pinned and are still what they were
  void pinned(std::uint32_t index, std::span<const std::byte> content, bool writes, const call_place& from) noexcept
  {
    cell& it = cells_[index];
    if (it.pins++ == 0) it.writers = false;
    it.from = from;
    if (writes)
      it.writers = true, it.known = false;
    else if (!it.writers && !it.known)
      it.know(sum_of_bytes(content));
  }

  /// A pin ends. @param retained   these bytes are the same until the next pin
  [[nodiscard]] finding released(std::uint32_t index, std::span<const std::byte> content, bool retained) noexcept
  {
    cell& it = cells_[index];
    finding found = finding::fine;
    if (!it.writers && it.known && it.sum != sum_of_bytes(content)) {
      found = finding::written_through_read;
      it.know(sum_of_bytes(content));  // told once
    }
    if (--it.pins > 0) return found;
    if (!retained)
      it.known = false;
    else if (!it.known)
      it.know(sum_of_bytes(content));
    return found;
  }

  /// Looks at bytes that nobody holds. @param content   a valid copy of the cell
  [[nodiscard]] finding compare(std::uint32_t index, std::span<const std::byte> content) noexcept
  {
    cell& it = cells_[index];
    if (it.pins > 0 || !it.known || it.sum == sum_of_bytes(content)) return finding::fine;
    it.known = false;  // told once
    return finding::written_unpinned;
  }

  /// The bytes are dead, or others changed them by right.
  void forget(std::uint32_t index) noexcept { cells_[index].known = false; }
  void forget_all() noexcept
  {
    for (cell& it : cells_) it.known = false;
  }

  [[nodiscard]] bool is_pinned(std::uint32_t index) const noexcept { return cells_[index].pins > 0; }
  /// Something is known of bytes that nobody holds.
  [[nodiscard]] bool is_watched(std::uint32_t index) const noexcept
  {
    return cells_[index].known && cells_[index].pins == 0;
  }
  /// Where its last pin was asked for.
  [[nodiscard]] const call_place& last_pin(std::uint32_t index) const noexcept { return cells_[index].from; }

 private:
  struct cell {
    std::uint64_t sum = 0;
    std::uint32_t pins = 0;
    bool known = false;    ///< the sum is that of the bytes
    bool writers = false;  ///< one of the pins since the first may write
    call_place from{"", 0};

    void know(std::uint64_t of) noexcept { sum = of, known = true; }
  };

  std::vector<cell> cells_;
};

}  // namespace checks

}  // namespace chunkmem::inline v0
