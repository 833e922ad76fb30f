// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/eviction/belady.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>
#include <chunkmem/eviction/lru.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

namespace eviction {

/// The order of evictions while a plan of retention is carried out on a copy of the residency. Not a policy to name.
///
///     by_retention order;
///     order.place_below(plan.borders);   // then as any eviction policy
///
/// A next use means here that the plan keeps the chunk until then. Chunks without a next use leave first, in the order
/// in which they were released: each load then waits for the frame that is free the longest. Chunks with a next use
/// leave only when nothing else is left. Cost: that of lru and of belady together.
class by_retention {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "by_retention";
  static constexpr std::uint32_t no_border = UINT32_MAX;

  /// @param borders   by access index: leases come down to this frame before a chunk that is loaded now leaves again.
  ///                  The array outlives its use
  void place_below(std::span<const std::uint32_t> borders) noexcept { borders_ = borders; }

  /// @param frames   by access index: the frame wanted for a chunk that is loaded now, or none. The array outlives its
  ///                 use
  void place_in(std::span<const std::uint32_t> frames) noexcept { frames_ = frames; }

  /// @param places   by access index: the first frame of the chunk that is used now, or none; empty: no places are
  ///                 planned. The array outlives its use
  void settle_in(std::span<const std::uint32_t> places) noexcept { places_ = places; }

  void reset(std::uint32_t chunks)
  {
    given_up_.reset(chunks);
    staying_.reset(chunks);
  }
  void on_profile(const access_record& record) { staying_.on_profile(record); }

  void enter(const candidate& item) noexcept { gives_up(item) ? given_up_.enter(item) : staying_.enter(item); }
  void leave(const candidate& item) noexcept { gives_up(item) ? given_up_.leave(item) : staying_.leave(item); }

  [[nodiscard]] chunk_id victim(access_index now) const noexcept
  {
    const chunk_id first = given_up_.victim(now);
    return first != chunk_id::none ? first : staying_.victim(now);
  }

  /// The plan does not keep the chunk.
  [[nodiscard]] bool gives_up(const candidate& item) const noexcept { return item.next_use == access_index::none; }
  /// A chunk that is loaded now must lie below this frame.
  [[nodiscard]] std::uint32_t border(access_index now) const noexcept
  {
    return index_of(now) < borders_.size() ? borders_[index_of(now)] : no_border;
  }
  /// The frame wanted for a chunk that is loaded now, or none.
  [[nodiscard]] std::uint32_t preferred(access_index now) const noexcept
  {
    return index_of(now) < frames_.size() ? frames_[index_of(now)] : no_border;
  }
  /// The first frame that is planned for the chunk that is used now, or none.
  [[nodiscard]] frame_id place(access_index now) const noexcept
  {
    return index_of(now) < places_.size() ? frame_id{places_[index_of(now)]} : frame_id::none;
  }
  /// Chunks take free frames in the order in which the frames became free. False: the highest first, which leaves the
  /// low frames to chunks that stay while leases come down. Plans with places have the second order.
  void order_by_age(bool on) noexcept { is_ordered_by_age_ = on; }
  [[nodiscard]] bool is_ordered_by_age() const noexcept { return is_ordered_by_age_ && !has_places(); }
  [[nodiscard]] bool has_places() const noexcept { return !places_.empty(); }

 private:
  lru given_up_;
  belady staying_;
  std::span<const std::uint32_t> borders_;
  std::span<const std::uint32_t> frames_;
  std::span<const std::uint32_t> places_;
  bool is_ordered_by_age_ = true;
};

static_assert(bounded_eviction<by_retention>);

}  // namespace eviction

}  // namespace chunkmem::inline v0
