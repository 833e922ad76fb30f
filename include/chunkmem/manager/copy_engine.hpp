// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/checks/no_checks.hpp>
#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/manager/checked_bytes.hpp>
#include <chunkmem/manager/chunk_mover.hpp>
#include <chunkmem/manager/chunk_table.hpp>
#include <chunkmem/manager/device_health.hpp>
#include <chunkmem/manager/fences.hpp>
#include <chunkmem/manager/gathering_mover.hpp>
#include <chunkmem/manager/report.hpp>
#include <chunkmem/trace/trace_sink.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// Carries out what residency decides: copies, the fences around them, and their trace.
///
/// The fence of a window is that of its first frame while a chunk is in it; when the window opens all its frames are
/// merged into the first, and spread again when it closes, so that no use of any frame is forgotten.
/// Cost: a copy adds one wait for each agent that must be followed and one event; no allocation after `reset`.
template <stream_backend Backend, chunk_mover<Backend> Mover, trace_sink Sink, check_policy Checks = checks::none>
class copy_engine {
 public:
  using watch_type = checked_bytes<Checks, Backend::host_addressable && has_bytes<Backend>()>;
  static constexpr bool gathers = gathering_mover<Mover, Backend>;

  /// @param health   hears of every error of the backend
  copy_engine(Backend& backend, device_health& health, Mover mover, Sink sink)
      : backend_{&backend}, health_{&health}, keeper_{backend, health}, mover_{std::move(mover)}, sink_{std::move(sink)}
  {
    if constexpr (gathers) keeper_.add_copy_agent(mover_.worker());
  }
  copy_engine(const copy_engine&) = delete;

  /// `used` are the bytes of each chunk; arenas begin at the given addresses.
  void reset(std::span<const std::uint64_t> used, std::uint64_t frame, per_tier<std::byte*> arena,
             per_tier<std::uint32_t> frames)
  {
    used_.assign(used.begin(), used.end());
    frame_ = frame;
    arena_ = arena;
    for (const tier where : {tier::device, tier::host}) fences_[where].assign(std::size_t{frames[where]} + 1, fence{});
  }
  /// What derived chunks are made of, and where the chunks lie that hold it, which must outlive this.
  void derive(chunk_shares shares, const chunk_table& places) noexcept
  {
    shares_ = std::move(shares);
    places_ = &places;
  }

  /// These checks hear of frames that come and go and of copies, and outlive this. @pre nothing was moved
  void tell(watch_type& checks) noexcept { watch_ = &checks; }

  [[nodiscard]] std::byte* address(tier where, std::uint32_t frame) const noexcept
  {
    return arena_[where] + frame * frame_;
  }
  [[nodiscard]] std::byte* lease_address(tier where, std::uint64_t begin) const noexcept
  {
    return arena_[where] + begin;
  }
  [[nodiscard]] fence& fence_at(tier where, std::uint32_t frame) noexcept { return fences_[where][frame]; }
  [[nodiscard]] fence_keeper<Backend>& keeper() noexcept { return keeper_; }
  [[nodiscard]] const fence_keeper<Backend>& keeper() const noexcept { return keeper_; }
  [[nodiscard]] const Sink& sink() const noexcept { return sink_; }
  /// Fills in what was moved and waited for.
  void describe(report& result) const
  {
    result.loaded = counts_.loaded;
    result.written_back = counts_.written_back;
    result.loads = counts_.loads;
    result.write_backs = counts_.write_backs;
    result.evictions = counts_.evictions;
    const auto seen = [this](wait_cause cause) { return keeper_.waited(cause); };
    using enum wait_cause;
    result.waits = {seen(demand_miss).count, seen(optimizer_input).count, seen(throttle).count, seen(other).count};
    result.stalls = {seen(demand_miss).nanoseconds, seen(optimizer_input).nanoseconds, seen(throttle).nanoseconds,
                     seen(other).nanoseconds};
  }

  /// Calls `visit(fence)` for each frame that a lease touches, and for the rest of the arena behind the last frame.
  template <class Visit>
  void for_lease(tier where, std::uint64_t begin, std::uint64_t size, Visit visit)
  {
    auto& fences = fences_[where];
    const std::uint64_t last = fences.size() - 1;
    for (std::uint64_t frame = begin / frame_; frame <= last && frame * frame_ < begin + size; ++frame)
      visit(fences[frame]);
    if ((begin + size - 1) / frame_ > last) visit(fences[last]);
  }

  /// Compute did all this in one go, and may have touched everything. O(frames).
  void replayed(const report& moved)
  {
    for (const tier where : {tier::device, tier::host})
      for (fence& it : fences_[where]) keeper_.stamp(agent::compute, it, true);
    counts_.loaded += moved.loaded;
    counts_.written_back += moved.written_back;
    counts_.loads += moved.loads;
    counts_.write_backs += moved.write_backs;
    counts_.evictions += moved.evictions;
  }

  // What residency calls. See residency.
  void placed(tier where, std::uint32_t first, std::uint32_t count) noexcept
  {
    fence& window = fences_[where][first];
    for (std::uint32_t at = first + 1; at < first + count; ++at) merge(window, fences_[where][at]);
    poison(where, first, count);
  }

  void vacated(tier where, std::uint32_t first, std::uint32_t count, bool) noexcept
  {
    for (std::uint32_t at = first + 1; at < first + count; ++at) fences_[where][at] = fences_[where][first];
    poison(where, first, count);
  }

  void load(std::uint32_t at, const chunk& it, std::uint32_t first)
  {
    const std::uint64_t begin = time();
    if (it.is_derived()) [[unlikely]] {
      make_whole(at, first);
      return tell(happening::load, tier::host, tier::device, at, begin);
    }
    fence& from = fences_[tier::host][it.host];
    fence& to = fences_[tier::device][first];
    order(agent::to_device, from, to);
    const lent_bytes lent{watch_, address(tier::host, it.host), address(tier::device, first), used_[at]};
    health_->starting([&] {
      mover_.bring(*backend_, address(tier::device, first), address(tier::host, it.host), bytes{used_[at]},
                   agent::to_device);
    });
    finish(agent::to_device, from, to);
    ++counts_.loads;
    counts_.loaded += bytes{used_[at]};
    tell(happening::load, tier::host, tier::device, at, begin);
  }

  void write_back(std::uint32_t at, const chunk& it)
  {
    const std::uint64_t begin = time();
    fence& from = fences_[tier::device][it.device];
    fence& to = fences_[tier::host][it.host];
    order(agent::to_host, from, to);
    const lent_bytes lent{watch_, address(tier::device, it.device), address(tier::host, it.host), used_[at]};
    health_->starting([&] {
      mover_.take(*backend_, address(tier::host, it.host), address(tier::device, it.device), bytes{used_[at]},
                  agent::to_host);
    });
    finish(agent::to_host, from, to);
    ++counts_.write_backs;
    counts_.written_back += bytes{used_[at]};
    tell(happening::write_back, tier::device, tier::host, at, begin);
  }

  /// Brings this rank's share of a chunk from where it is valid, then all others', to these frames.
  void make_whole(std::uint32_t at, std::uint32_t first)
  {
    if constexpr (gathers) {
      for (const chunk_share& it : shares_.of(at)) bring_share(it, first);
      fence& to = fences_[tier::device][first];
      keeper_.follow(mover_.worker(), to, to.users, wait_cause::other);
      const lent_bytes lent{watch_, address(tier::device, first), nullptr, used_[at]};
      health_->starting(
          [&] { mover_.gather(*backend_, address(tier::device, first), bytes{used_[at]}, shares_.label_of(at)); });
      stamp_collective(to);
    }
  }
  /// Adds what all ranks have in this chunk: this rank's share becomes the sum. @pre it is on the device, and the mover
  /// gathers
  void sum(std::uint32_t at, const chunk& it, std::uint32_t label, collective::sum how)
  {
    fence& frames = fences_[tier::device][it.device];
    keeper_.follow(mover_.worker(), frames, frames.users, wait_cause::other);
    const lent_bytes lent{watch_, address(tier::device, it.device), nullptr, used_[at]};
    health_->starting([&] { mover_.sum(*backend_, address(tier::device, it.device), bytes{used_[at]}, label, how); });
    stamp_collective(frames);
  }

  void claimed(std::uint32_t at, const chunk&, std::uint32_t) noexcept
  {
    tell(happening::claim, tier::device, tier::device, at, time());
  }
  void leased(tier where, std::uint64_t, std::uint64_t size) noexcept { note(happening::lease, where, size); }
  void evicted(std::uint32_t at, const chunk& it) noexcept
  {
    ++counts_.evictions;
    compare(at, it);
    tell(happening::evict, tier::device, tier::host, at, time());
  }
  void discarded(std::uint32_t at, const chunk& it) noexcept
  {
    compare(at, it);
    tell(happening::discard, tier::device, tier::device, at, time());
  }

  /// Events that are no copy.
  void note(happening what, tier where, std::uint64_t size) noexcept
  {
    if constexpr (!std::same_as<Sink, trace::null_sink>) {
      const std::uint64_t now = time();
      sink_.record({what, where, where, chunk_id::none, size, now, now});
    }
  }

 private:
  /// Bytes that a copy goes over; with checks the copy is done when this ends.
  class lent_bytes {
   public:
    lent_bytes(watch_type* watch, std::byte* first, std::byte* second, std::uint64_t size) noexcept
    {
      if constexpr (watch_type::sees_bytes) {
        watch_ = watch;
        from_ = {first, size};
        if (second != nullptr) to_ = {second, size};
        watch_->part().lend(from_), watch_->part().lend(to_);
      }
    }
    lent_bytes(const lent_bytes&) = delete;
    ~lent_bytes()
    {
      if constexpr (watch_type::sees_bytes) watch_->part().take_back(from_), watch_->part().take_back(to_);
    }

   private:
    watch_type* watch_ = nullptr;
    std::span<std::byte> from_, to_;
  };

  void poison(tier where, std::uint32_t first, std::uint32_t count) noexcept
  {
    if constexpr (watch_type::sees_bytes) watch_->part().fresh({address(where, first), count * frame_});
  }
  void compare(std::uint32_t at, const chunk& it) noexcept
  {
    if constexpr (watch_type::sees_bytes) watch_->compare_chunk(at, address(tier::device, it.device));
  }

  void bring_share(const chunk_share& share, std::uint32_t first)
  {
    const chunk& home = (*places_)[share.chunk];
    expects(home.live > 0, "a derived chunk was used before its share was filled");
    const tier where = home.on_device() ? tier::device : tier::host;
    const std::uint32_t frame = where == tier::device ? home.device : home.host;
    fence& from = fences_[where][frame];
    fence& to = fences_[tier::device][first];
    order(agent::to_device, from, to);
    const lent_bytes lent{watch_, address(where, frame) + share.offset, address(tier::device, first) + share.begin,
                          share.size};
    health_->starting([&] {
      backend_->copy(address(tier::device, first) + share.begin, address(where, frame) + share.offset,
                     bytes{share.size}, agent::to_device);
    });
    finish(agent::to_device, from, to);
    ++counts_.loads;
    counts_.loaded += bytes{share.size};
  }
  void stamp_collective(fence& frames)
  {
    fence_keeper<Backend>::stamp_copy(keeper_.copied(mover_.worker()), frames, true);
  }

  static void merge(fence& into, const fence& from) noexcept
  {
    for (unsigned source = 0; source < max_agents; ++source)
      if (from.last[source] > into.last[source]) into.last[source] = from.last[source];
    into.users |= from.users;
    into.writers |= from.writers;
  }

  void order(agent who, fence& from, fence& to)
  {
    keeper_.follow(who, from, from.writers, wait_cause::other);
    keeper_.follow(who, to, to.users, wait_cause::other);
  }

  void finish(agent who, fence& from, fence& to)
  {
    const event done = keeper_.copied(who);
    fence_keeper<Backend>::stamp_copy(done, to, true);
    fence_keeper<Backend>::stamp_copy(done, from, false);
  }

  [[nodiscard]] std::uint64_t time() const noexcept
  {
    if constexpr (std::same_as<Sink, trace::null_sink>)
      return 0;
    else
      return backend_->now();
  }

  void tell(happening what, tier from, tier to, std::uint32_t at, std::uint64_t begin) noexcept
  {
    if constexpr (!std::same_as<Sink, trace::null_sink>)
      sink_.record({what, from, to, chunk_id{at}, used_[at], begin, time()});
  }

  Backend* backend_;
  device_health* health_;
  fence_keeper<Backend> keeper_;
  Mover mover_;
  Sink sink_;
  std::vector<std::uint64_t> used_;
  per_tier<std::vector<fence>> fences_;  // by frame, and one for the rest of the arena
  per_tier<std::byte*> arena_;
  std::uint64_t frame_ = 1;
  report counts_;  // of these, only what is moved
  chunk_shares shares_;
  const chunk_table* places_ = nullptr;
  watch_type* watch_ = nullptr;
};

}  // namespace chunkmem::inline v0
