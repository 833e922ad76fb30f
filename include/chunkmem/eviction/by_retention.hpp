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

/// Evicts what has no next use, in the order in which it was let go of; what has one only when nothing else is left.
///
/// The order in which a plan is carried out on a copy of the residency, where a next use means that the plan keeps the
/// chunk until then. Not a policy to name. The chunk that was let go of first leaves first, so that each load waits for
/// the frame that is free the longest. Cost: that of lru and of belady together.
class by_retention {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "by_retention";
  static constexpr std::uint32_t no_border = UINT32_MAX;

  /// @param borders   by moment: leases come down to this frame before a chunk that comes now leaves again; outlives
  ///   its use
  void place_below(std::span<const std::uint32_t> borders) noexcept { borders_ = borders; }

  /// @param frames   by moment: where a chunk that comes now lies if it can, or none; outlives its use
  void place_in(std::span<const std::uint32_t> frames) noexcept { frames_ = frames; }

  void reset(std::uint32_t chunks)
  {
    given_up_.reset(chunks);
    staying_.reset(chunks);
  }
  void on_profile(const access_record& record) { staying_.on_profile(record); }

  void enter(const candidate& item) noexcept { gives_up(item) ? given_up_.enter(item) : staying_.enter(item); }
  void leave(const candidate& item) noexcept { gives_up(item) ? given_up_.leave(item) : staying_.leave(item); }

  [[nodiscard]] chunk_id victim(moment now) const noexcept
  {
    const chunk_id first = given_up_.victim(now);
    return first != chunk_id::none ? first : staying_.victim(now);
  }

  /// The plan does not keep it.
  [[nodiscard]] bool gives_up(const candidate& item) const noexcept { return item.next_use == moment::none; }
  /// The first frame where a chunk that comes now must not lie.
  [[nodiscard]] std::uint32_t border(moment now) const noexcept
  {
    return index_of(now) < borders_.size() ? borders_[index_of(now)] : no_border;
  }
  /// The frame for a chunk that comes now, or none.
  [[nodiscard]] std::uint32_t preferred(moment now) const noexcept
  {
    return index_of(now) < frames_.size() ? frames_[index_of(now)] : no_border;
  }

 private:
  lru given_up_;
  belady staying_;
  std::span<const std::uint32_t> borders_;
  std::span<const std::uint32_t> frames_;
};

static_assert(bounded_eviction<by_retention>);

}  // namespace eviction

}  // namespace chunkmem::inline v0
