// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/placement/placement_policy.hpp>

#include <cstdint>
#include <string_view>

namespace support {

/// All states on the device, so the optimizer updates there. A user-defined placement.
struct device_only {
  using policy_kind = chunkmem::placement_kind;
  static constexpr std::string_view name = "device_only";
  [[nodiscard]] constexpr chunkmem::tier preferred_tier(chunkmem::role, chunkmem::bytes) const noexcept
  {
    return chunkmem::tier::device;
  }
};

/// Small states on the device. A placement with a setting.
struct small_on_device {
  using policy_kind = chunkmem::placement_kind;
  static constexpr std::string_view name = "small_on_device";
  chunkmem::bytes limit{};
  [[nodiscard]] constexpr chunkmem::tier preferred_tier(chunkmem::role, chunkmem::bytes size) const noexcept
  {
    return size <= limit ? chunkmem::tier::device : chunkmem::tier::host;
  }
};

/// Gives every tensor a chunk of its own. A user-defined layout.
class one_each_layout {
 public:
  using policy_kind = chunkmem::layout_kind;
  static constexpr std::string_view name = "one_each_layout";
  void reset(chunkmem::bytes frame)
  {
    frame_ = chunkmem::frame_size{frame};
    next_ = 0;
  }
  chunkmem::chunk_place place(chunkmem::bytes size)
  {
    const std::uint32_t frames = frame_.frames_for(chunkmem::frame_size::padded(size));  // it may throw
    return {next_++, 0, frames};
  }

 private:
  chunkmem::frame_size frame_;
  std::uint32_t next_ = 0;
};

/// Its first setting evicts the lowest chunk; the second is belady. An eviction with settings to choose from.
class lowest_or_belady : public chunkmem::eviction::belady {
 public:
  static constexpr std::string_view name = "lowest_or_belady";
  [[nodiscard]] std::uint32_t variants() const noexcept { return 2; }
  void choose(std::uint32_t variant) noexcept { is_belady_ = variant == 1; }
  void reset(std::uint32_t chunks)
  {
    belady::reset(chunks);
    inside_.reset(chunks);
  }
  void enter(const chunkmem::eviction::candidate& item) noexcept
  {
    belady::enter(item);
    inside_.insert(index_of(item.chunk));
  }
  void leave(const chunkmem::eviction::candidate& item) noexcept
  {
    belady::leave(item);
    inside_.erase(index_of(item.chunk));
  }
  [[nodiscard]] chunkmem::chunk_id victim(chunkmem::access_index now) const noexcept
  {
    if (is_belady_) return belady::victim(now);
    const std::uint32_t lowest = inside_.first_from(0);
    return lowest == chunkmem::index_set::none ? chunkmem::chunk_id::none : chunkmem::chunk_id{lowest};
  }

 protected:
  chunkmem::index_set inside_;
  bool is_belady_ = false;
};
static_assert(chunkmem::tuned_eviction<lowest_or_belady>);

}  // namespace support
