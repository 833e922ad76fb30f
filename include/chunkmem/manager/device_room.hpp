// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/chunk/window_choice.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>
#include <chunkmem/manager/host_room.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/profile/tide.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

namespace chunkmem::inline v0 {

/// The device's half of residency: which chunks leave it, and where a free frame or window is taken.
///
/// Cost: a free frame O(1) words, and one decision of the policy where leases come down to it; else one decision for
/// each chunk that must leave, and for a window of several frames one for each chunk that would leave before a window
/// opens.
template <eviction_policy Eviction>
class device_room : public host_room<Eviction> {
  using base = host_room<Eviction>;

 public:
  using base::chunks, base::shortage;

  /// As host_room::reset; no leases are expected.
  void reset(std::span<const std::uint32_t> frames_of_chunk, std::uint32_t slots)
  {
    base::reset(frames_of_chunk, slots);
    leases_from_ = frame_pool::none;
  }

 protected:
  using base::candidates_, base::chunks_, base::device_, base::live_, base::take_host_window;

  explicit device_room(Eviction eviction) : base{std::move(eviction)} {}

  /// Leases of the iterations to come reach as far down as those of `record`. O(entries + chunks).
  void expect_leases(const access_record& record) noexcept
  {
    has_windows_ = std::ranges::any_of(chunks_, [](const chunk& it) { return it.frames > 1; });
    const std::uint64_t tide = std::min(most_leased(record, tier::device).count(), device_.capacity());
    const std::uint64_t first =
        std::min<std::uint64_t>((device_.capacity() - tide) / device_.frame_bytes(), device_.frames());
    leases_from_ = tide == 0 ? frame_pool::none : static_cast<std::uint32_t>(first);
  }

  /// A free window of `count` device frames; evicts what is in it.
  /// @throws out_of_memory   before anything is evicted, or where the host has no room for one of several
  template <class Mover>
  std::uint32_t make_room(std::uint32_t count, moment now, Mover& mover)
  {
    if constexpr (bounded_eviction<Eviction>) {
      if (count == 1) return make_bounded_room(now, mover);
    }
    std::uint32_t first = device_.pool().lowest(count);
    if (first != frame_pool::none && (count > 1 || !is_spared(first, now))) return first;
    if (count == 1) {
      const chunk_id victim = candidates_.victim(now, chunks_);
      if (victim == chunk_id::none) throw out_of_memory{shortage(tier::device, device_.frame_bytes())};
      evict_or_clean(index_of(victim), mover);
      return device_.pool().lowest(1);
    }
    // the window that opens first: whose best chunk is worst
    candidates_.rank(now, chunks_, [&](std::uint32_t victim) {
      first = cheapest_window_around(
          device_, count, chunks_[victim].device, chunks_[victim].frames,
          [this](std::uint32_t at) { return candidates_.is_named(at) ? 1U : impossible_window; });
      return first != frame_pool::none;
    });
    if (first == frame_pool::none) throw out_of_memory{shortage(tier::device, count * device_.frame_bytes())};
    for (std::uint32_t frame = first; frame < first + count; ++frame)
      if (const std::uint32_t who = device_.occupant(frame); who < chunks()) evict(who, mover);
    return first;
  }

  /// A frame below `border` of a chunk that the plan gives up, which was let go of first; or none, and nothing was
  /// evicted.
  template <class Mover>
  std::uint32_t make_expendable_room(std::uint32_t border, Mover& mover)
  {
    std::uint32_t victim = chunk::nowhere;
    candidates_.rank(moment::none, chunks_, [&](std::uint32_t at) {
      if (!candidates_.gives_up(at)) return true;
      if (chunks_[at].frames == 1 && chunks_[at].device < border && can_leave(at)) victim = at;
      return victim != chunk::nowhere;
    });
    if (victim == chunk::nowhere) return frame_pool::none;
    const std::uint32_t first = chunks_[victim].device;
    evict(victim, mover);
    return first;
  }

  /// A plan gives this chunk of one frame up, and it can leave. No other policy gives up.
  [[nodiscard]] bool is_given_up(std::uint32_t at) const noexcept
  {
    if constexpr (!bounded_eviction<Eviction>)
      return false;
    else if (at >= chunks() || chunks_[at].frames != 1 || chunks_[at].device_pins > 0)
      return false;
    else
      return chunks_[at].next_use == access_record::never && can_leave(at);
  }

  /// A lease comes down onto it rather than into free room below. Not where some chunks are windows of several frames:
  /// a plan in bytes does not know what those wait for, and some steps that were tried then moved up to 0.04 of the
  /// bound more.
  [[nodiscard]] bool makes_way(std::uint32_t at) const noexcept { return !has_windows_ && is_given_up(at); }

  template <class Mover>
  void evict(std::uint32_t at, Mover& mover)
  {
    if (chunks_[at].live > 0 && !chunks_[at].host_valid) save(at, mover);
    mover.evicted(at, chunks_[at]);
    leave_device(at, mover, true);
  }

  template <class Mover>
  void leave_device(std::uint32_t at, Mover& mover, bool evicted)
  {
    chunk& it = chunks_[at];
    candidates_.touch(at, it);
    if constexpr (requires { mover.discarded(at, it); })
      if (!evicted) mover.discarded(at, it);
    device_.vacate(it.device, it.frames);
    mover.vacated(tier::device, it.device, it.frames, evicted);
    it.device = chunk::nowhere;
  }

  /// Makes the host's copy valid again; the chunk stays on the device.
  template <class Mover>
  void save(std::uint32_t at, Mover& mover)
  {
    chunk& it = chunks_[at];
    take_host_window(at, mover);
    mover.write_back(at, it);
    candidates_.touch(at, it);
    it.host_valid = true;
  }

 private:
  /// A free frame is spared where leases will come down and push out what lies there, if a chunk below leaves at no
  /// price: nothing loads it again, and the host has its bytes, or has to get them in any case and has a window for
  /// them.
  [[nodiscard]] bool is_spared(std::uint32_t free, moment now) noexcept
  {
    if (free < leases_from_) return false;
    const chunk_id victim = candidates_.victim(now, chunks_);
    if (victim == chunk_id::none) return false;
    const chunk& it = chunks_[index_of(victim)];
    if (it.next_use != access_record::never || it.frames != 1 || it.device >= free) return false;
    return it.host_valid || (it.left_for_host && it.host != chunk::nowhere);
  }

  /// A free frame for a chunk that has to lie below the border of its stay, the highest there is, so that the low ones
  /// are left to those that stay while leases come down. Where none is, a chunk below it that the plan gives up makes
  /// room; else any.
  template <class Mover>
  std::uint32_t make_bounded_room(moment now, Mover& mover)
  {
    const std::uint32_t border = candidates_.border(now);
    if (const std::uint32_t own = candidates_.policy().preferred(now); own < border && clear_frame(own, mover))
      return own;
    if (const std::uint32_t first = device_.pool().highest_below(border); first != frame_pool::none) return first;
    std::uint32_t victim = chunk::nowhere;
    std::uint32_t below = chunk::nowhere;
    candidates_.rank(now, chunks_, [&](std::uint32_t at) {
      const bool expendable = candidates_.gives_up(at);
      if (victim == chunk::nowhere) victim = at;
      if (expendable && chunks_[at].device < border) below = at;
      return below != chunk::nowhere || !expendable;
    });
    if (below == chunk::nowhere) {
      if (const std::uint32_t first = device_.pool().lowest(1); first != frame_pool::none) return first;
      if (victim == chunk::nowhere) throw out_of_memory{shortage(tier::device, device_.frame_bytes())};
      below = victim;
    }
    evict_or_clean(below, mover);
    return device_.pool().lowest(1);
  }

  /// @return   the frame is free, if need be after a chunk left it that the plan gives up
  template <class Mover>
  bool clear_frame(std::uint32_t at, Mover& mover)
  {
    if (at >= device_.frames()) return false;
    if (device_.pool().is_free(at)) return true;
    const std::uint32_t who = device_.occupant(at);
    if (!is_given_up(who)) return false;
    evict(who, mover);
    return true;
  }

  /// Evicts the victim; where the host has no room for it, a chunk that needs none. O(chunks) in that case.
  template <class Mover>
  void evict_or_clean(std::uint32_t victim, Mover& mover)
  {
    try {
      return evict(victim, mover);
    } catch (const out_of_memory&) {
      for (std::uint32_t at = 0; at < chunks(); ++at)
        if (chunks_[at].on_device() && chunks_[at].device_pins == 0 && chunks_[at].host_valid) return evict(at, mover);
      throw;
    }
  }

  /// Evicting it takes no room on the host.
  [[nodiscard]] bool can_leave(std::uint32_t at) const noexcept
  {
    return chunks_[at].host_valid || chunks_[at].live == 0 || chunks_[at].host != chunk::nowhere;
  }

  std::uint32_t leases_from_ = frame_pool::none;  // the lowest frame that leases of the record reach
  bool has_windows_ = false;                      // of several frames
};

}  // namespace chunkmem::inline v0
