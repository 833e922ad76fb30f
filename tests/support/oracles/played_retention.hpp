// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/record_uses.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace support {

/// Executes a plan of retention, access by access: three iterations where it repeats, of which only the last one
/// counts.
class played_retention {
 public:
  played_retention(const chunkmem::transfer::retention_input& what, std::span<const std::uint8_t> retained)
      : what_{what}, retained_{retained}, chunks_(what.chunk_bytes.size())
  {
    for (int lap = 0; lap < (what.repeats ? 3 : 1); ++lap) {
      moved_ = 0;
      std::size_t next = 0;
      for (std::size_t now = 0; now < what.device_bytes.size(); ++now) {
        release(now);
        for (; next < what.uses.size() && what.uses[next].begin == now; ++next) begin(next);
        if (held_ > what.device_bytes[now]) fits_ = false;
      }
      release(what.device_bytes.size());
    }
  }

  [[nodiscard]] std::uint64_t moved_bytes() const { return moved_; }
  [[nodiscard]] bool fits() const { return fits_; }

 private:
  using use_kind = chunkmem::transfer::use_kind;
  struct copies {
    bool on_device = false;
    bool is_dirty = false;
    bool is_empty = false;
  };

  void begin(std::size_t index)
  {
    const auto& it = what_.uses[index];
    copies& mine = chunks_[it.chunk];
    const std::uint64_t size = what_.chunk_bytes[it.chunk];
    if (it.kind == use_kind::host_read || it.kind == use_kind::host_update) {
      moved_ += mine.is_dirty ? size : 0;
      mine.is_dirty = false;
    }
    if (it.kind == use_kind::host_read) return;
    if (it.kind > use_kind::overwrite) {
      held_ -= mine.on_device ? size : 0;
      mine = {false, false, it.kind == use_kind::drop};
      return;
    }
    if (!mine.on_device) {
      held_ += size;
      moved_ += it.kind != use_kind::overwrite && !mine.is_empty ? size : 0;
    }
    mine = {true, mine.is_dirty || mine.is_empty || it.kind != use_kind::read, false};
    open_.push_back(index);
  }

  /// Uses that end before an access; a chunk is dropped at the end of its last use if the plan says so.
  void release(std::size_t now)
  {
    std::vector<std::size_t> ended;
    for (std::size_t which = 0; which < open_.size();) {
      if (what_.uses[open_[which]].end != now) {
        ++which;
        continue;
      }
      ended.push_back(open_[which]);
      open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(which));
    }
    for (std::size_t which = 0; which < ended.size(); ++which) {
      const std::uint32_t chunk = what_.uses[ended[which]].chunk;
      bool is_last = true;
      for (const std::size_t other : open_) is_last = is_last && what_.uses[other].chunk != chunk;
      for (std::size_t later = which + 1; later < ended.size(); ++later)
        is_last = is_last && what_.uses[ended[later]].chunk != chunk;
      if (!is_last || retained_[ended[which]] != 0 || !chunks_[chunk].on_device) continue;
      held_ -= what_.chunk_bytes[chunk];
      const bool is_wanted = what_.repeats || is_used_from(now, chunk);  // a single iteration counts no later uses
      moved_ += chunks_[chunk].is_dirty && is_wanted ? what_.chunk_bytes[chunk] : 0;
      chunks_[chunk].on_device = chunks_[chunk].is_dirty = false;
    }
  }

  [[nodiscard]] bool is_used_from(std::size_t now, std::uint32_t chunk) const
  {
    return std::ranges::any_of(what_.uses, [&](const auto& it) { return it.chunk == chunk && it.begin >= now; });
  }

  chunkmem::transfer::retention_input what_;
  std::span<const std::uint8_t> retained_;
  std::vector<copies> chunks_;
  std::vector<std::size_t> open_;  // uses on the device that last
  std::uint64_t held_ = 0;
  std::uint64_t moved_ = 0;
  bool fits_ = true;
};

}  // namespace support
