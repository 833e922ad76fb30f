// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/checks/check_policy.hpp>
#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/chunk_mover.hpp>
#include <chunkmem/manager/chunk_table.hpp>
#include <chunkmem/manager/hazard_tracker.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/report.hpp>
#include <chunkmem/tensor/tensor.hpp>
#include <chunkmem/trace/trace_sink.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

/// Notifies a check policy of pins, frames and gradients: this class knows which bytes belong to which tensor.
///
///     checked_bytes<checks::full, true> watch;
///     watch.reset(tensors);
///     watch.pinned(slot, data, access::read);
///     watch.released(slot, data, access::read);
///
/// Every call is empty where the policy is off. Where the calling thread cannot read the device, only calls and
/// gradients are checked. Cost: that of the policy; O(slots) where a chunk leaves.
/// @tparam SeesBytes   the calling thread can read all tiers
template <check_policy Checks, bool SeesBytes>
class checked_bytes {
 public:
  using part_type = typename Checks::part;
  static constexpr bool is_on = Checks::is_on;
  static constexpr bool sees_bytes = is_on && SeesBytes;

  [[nodiscard]] part_type& part() noexcept { return part_; }

  /// Arenas are about to be used. @param tensors   sealed; outlives this
  void reset(const registry& tensors)
  {
    if constexpr (is_on) {
      part_.reset(static_cast<std::uint32_t>(tensors.slots().size()), tensors.parameters());
      tensors_ = &tensors;
    }
  }

  void pinned(slot_id slot, std::byte* data, access how)
  {
    if constexpr (sees_bytes) part_.pinned(event_of(slot, data, how));
  }
  void released(slot_id slot, std::byte* data, access how) noexcept
  {
    if constexpr (sees_bytes) part_.released(event_of(slot, data, how));
  }
  /// Checks that the bytes of the slot were not written since its last pin ended.
  void compare(slot_id slot, std::byte* data) noexcept
  {
    if constexpr (sees_bytes) part_.compare(event_of(slot, data, access::read));
  }
  [[nodiscard]] bool is_watched(slot_id slot) const noexcept
  {
    if constexpr (sees_bytes)
      return tensors_ != nullptr && part_.is_watched(index_of(cell_of(slot)));
    else
      return false;
  }
  /// As `compare`, for all tensors in a chunk that is about to leave. O(slots).
  void compare_chunk(chunk_id chunk, std::byte* begin) noexcept
  {
    if constexpr (sees_bytes) {
      for (const slot_id each : tensors_->slot_ids()) {
        const slot& slot_state = (*tensors_)[each];
        if (slot_state.chunk == chunk && is_watched(each)) compare(each, begin + slot_state.offset);
      }
    }
  }

  /// The bytes of a slot are dead, unless its weight has taken them back. @return   they are dead
  bool dropped(slot_id slot) noexcept
  {
    if constexpr (!is_on) return false;
    if (tensors_->is_gradient(slot)) part_.gradient_gone(index_of(tensors_->value_of(slot)));
    const slot_id cell = cell_of(slot);
    const tensor_state owner = (*tensors_)[cell].state;
    if (cell != slot && owner != tensor_state::free && owner != tensor_state::gradient) return false;
    part_.forget(index_of(cell));
    return true;
  }

  /// @param data   of a valid copy; null: there is none that the calling thread can read
  void gradient_opened(slot_id value_slot, std::byte* data, bool first, bool has_beta)
  {
    if constexpr (is_on) part_.gradient_opened(gradient_of(value_slot, data), first, has_beta);
  }
  void expect_written(slot_id value_slot, std::byte* data, std::string_view before)
  {
    if constexpr (is_on) part_.expect_written(gradient_of(value_slot, data), before);
  }

 private:
  /// A gradient in its weight's bytes has the weight's cell.
  [[nodiscard]] slot_id cell_of(slot_id slot) const noexcept
  {
    if (!tensors_->is_gradient(slot)) return slot;
    const chunkmem::slot& own = (*tensors_)[slot];
    const chunkmem::slot& value = (*tensors_)[tensors_->value_of(slot)];
    return own.chunk == value.chunk && own.offset == value.offset ? tensors_->value_of(slot) : slot;
  }
  [[nodiscard]] checks::pin_event event_of(slot_id slot, std::byte* data, access how) const noexcept
  {
    return {index_of(slot), index_of(cell_of(slot)), {data, (*tensors_)[slot].size}, how, !tensors_->is_gathered(slot)};
  }
  [[nodiscard]] checks::gradient_event gradient_of(slot_id value_slot, std::byte* data) const noexcept
  {
    const slot_id gradient = tensors_->gradient_of(value_slot);
    const std::size_t size = sees_bytes && data != nullptr ? (*tensors_)[gradient].size : 0;
    return {index_of(value_slot), index_of(gradient), {data, size}, tensors_->gradient_type(value_slot)};
  }

  [[no_unique_address]] part_type part_;
  const registry* tensors_ = nullptr;
};

/// Carries out the decisions of a chunk_cache: starts copies, orders them after other uses of the frames, writes to a
/// trace.
///
/// The hazards of a chunk's frames are kept at its first frame. When a chunk is placed, the hazards of all its frames
/// are merged there; when it leaves, they are spread again. So no use of any frame is forgotten.
/// Cost: a copy adds one wait for each agent that must be followed and one event; no allocation after `reset`.
/// @code
/// copy_engine copies{backend, health, copy_mover{}, trace::null_sink{}};
/// copies.reset(used_bytes, frame, arenas, frames);
/// cache.acquire(slot, chunk, kind, next_use, now, copies);  // the cache calls placed, copy, evicted, ...
/// copies.follow(stream, copies.hazards_at(tier::device, first), ...);  // before the stream uses the bytes
/// @endcode
template <stream_backend Backend, chunk_mover<Backend> Mover, trace_sink Sink, check_policy Checks = checks::none>
class copy_engine {
 public:
  using watch_type = checked_bytes<Checks, Backend::host_addressable && has_bytes<Backend>()>;
  static constexpr bool gathers = gathering_mover<Mover, Backend>;

  /// @param health   is notified of every error of the backend
  copy_engine(Backend& backend, device_health& health, Mover mover, Sink sink)
      : backend_{&backend},
        health_{&health},
        tracker_{backend, health},
        mover_{std::move(mover)},
        sink_{std::move(sink)}
  {
    if constexpr (gathers)
      for (const agent each : {mover_.worker(), mover_.worker_of_sums(), mover_.worker_of_shares()})
        tracker_.add_copy_agent(each);
  }
  copy_engine(const copy_engine&) = delete;

  /// `used` are the bytes of each chunk; arenas begin at the given addresses.
  void reset(std::span<const std::uint64_t> used, std::uint64_t frame, per_tier<std::byte*> arena,
             per_tier<std::uint32_t> frames)
  {
    used_.assign(used);
    frame_ = frame;
    arena_ = arena;
    for (const tier where : all_tiers) hazards_[where].assign(std::size_t{frames[where]} + 1, frame_hazards{});
  }
  /// Copies of this chunk move so many bytes from now on, its first ones.
  void set_used(chunk_id id, std::uint64_t size) noexcept { used_[index_of(id)] = size; }
  [[nodiscard]] std::uint64_t used(chunk_id id) const noexcept { return used_[index_of(id)]; }
  /// Sets the shares that make gathered chunks, and the places of the chunks that hold the shares.
  /// @param places   outlive this object
  void derive(chunk_shares shares, const chunk_table& places) noexcept
  {
    shares_ = std::move(shares);
    places_ = &places;
  }

  /// Notifies these checks of copies and of frames that are taken or freed. The checks outlive this object. @pre
  /// nothing was moved
  void tell(watch_type& checks) noexcept { watch_ = &checks; }

  [[nodiscard]] std::byte* address(tier where, frame_id frame) const noexcept
  {
    return arena_[where] + index_of(frame) * frame_;
  }
  [[nodiscard]] std::byte* lease_address(tier where, std::uint64_t begin) const noexcept
  {
    return arena_[where] + begin;
  }
  [[nodiscard]] frame_hazards& hazards_at(tier where, frame_id frame) noexcept
  {
    return hazards_[where][index_of(frame)];
  }
  [[nodiscard]] hazard_tracker<Backend>& tracker() noexcept { return tracker_; }
  [[nodiscard]] const hazard_tracker<Backend>& tracker() const noexcept { return tracker_; }
  [[nodiscard]] const Sink& sink() const noexcept { return sink_; }
  /// Later work of `stream` follows the uses of a frame by the agents in `mask`. Where ranks share chunks, the calling
  /// thread continues only if their work so far has succeeded: the uses may depend on that work. @throws comm_error
  /// the work of ranks failed, and each later call throws that too; device_error
  void follow(agent stream, frame_hazards& frame, std::uint8_t mask, wait_cause cause)
  {
    if constexpr (gathers)
      tracker_.follow(stream, frame, mask, cause, mover_);
    else
      tracker_.follow(stream, frame, mask, cause);
  }
  /// @throws comm_error   the work of ranks is known to have failed
  void check_ranks()
  {
    if constexpr (gathers) mover_.check();
  }
  /// Fills in what was moved and waited for.
  void describe(report& result) const
  {
    result.loaded = counts_.loaded;
    result.written_back = counts_.written_back;
    result.loads = counts_.loads;
    result.write_backs = counts_.write_backs;
    result.evictions = counts_.evictions;
    const auto seen = [this](wait_cause cause) { return tracker_.waited(cause); };
    using enum wait_cause;
    result.waits = {seen(demand_miss).count, seen(optimizer_input).count, seen(throttle).count, seen(other).count};
    result.stalls = {seen(demand_miss).nanoseconds, seen(optimizer_input).nanoseconds, seen(throttle).nanoseconds,
                     seen(other).nanoseconds};
  }

  /// Calls `visit(frame_hazards)` for each frame that a lease touches. The rest of the arena after the last frame is
  /// one more.
  template <class Visit>
  void for_lease(tier where, std::uint64_t begin, std::uint64_t size, Visit visit)
  {
    auto& all = hazards_[where];
    const std::uint64_t last = all.size() - 1;
    for (std::uint64_t frame = begin / frame_; frame <= last && frame * frame_ < begin + size; ++frame)
      visit(all[frame]);
    if ((begin + size - 1) / frame_ > last) visit(all[last]);
  }

  /// The agent compute did all of this as one graph, and may have touched all frames. O(frames).
  void replayed(const report& moved)
  {
    for (const tier where : all_tiers)
      for (frame_hazards& it : hazards_[where]) tracker_.stamp(agent::compute, it, true);
    counts_.loaded += moved.loaded;
    counts_.written_back += moved.written_back;
    counts_.loads += moved.loads;
    counts_.write_backs += moved.write_backs;
    counts_.evictions += moved.evictions;
  }

  // The calls of a chunk_cache: see cache_mover.

  void placed(tier where, frame_id first, std::uint32_t count) noexcept
  {
    frame_hazards& all = hazards_at(where, first);
    for (std::uint32_t index = 1; index < count; ++index) all.merge(hazards_at(where, first + index));
    poison(where, first, count);
  }

  void vacated(tier where, frame_id first, std::uint32_t count, bool) noexcept
  {
    for (std::uint32_t index = 1; index < count; ++index) hazards_at(where, first + index) = hazards_at(where, first);
    poison(where, first, count);
  }

  /// Over the link between two neighbouring tiers; a gathered chunk is made from its shares instead.
  /// @pre the chunk has frames in both
  void copy(chunk_id id, const chunk& chunk_state, tier from, tier to)
  {
    const std::uint64_t begin = time();
    const bool is_load = to < from;
    if (is_load && chunk_state.is_gathered())
      make_whole(id, chunk_state.first_frame[to]);
    else
      copy_frames(id, {from, chunk_state.first_frame[from]}, {to, chunk_state.first_frame[to]});
    tell(is_load ? trace_event_kind::load : trace_event_kind::write_back, from, to, id, begin);
  }

  void claimed(chunk_id id, const chunk&, tier where) noexcept
  {
    tell(trace_event_kind::claim, where, where, id, time());
  }
  void leased(tier where, std::uint64_t, std::uint64_t size) noexcept { note(trace_event_kind::lease, where, size); }
  void evicted(chunk_id id, const chunk& chunk_state, tier where) noexcept
  {
    ++counts_.evictions;
    compare(id, chunk_state, where);
    tell(trace_event_kind::evict, where, next_tier(where), id, time());
  }
  void discarded(chunk_id id, const chunk& chunk_state, tier where) noexcept
  {
    compare(id, chunk_state, where);
    tell(trace_event_kind::discard, where, where, id, time());
  }

  // Collectives.

  /// Brings this rank's share of a chunk from its valid copy, then the shares of all other ranks, to these frames.
  void make_whole(chunk_id id, frame_id first)
  {
    if constexpr (gathers) {
      for (const chunk_share& it : shares_.of(id)) bring_share(it, first);
      frame_hazards& to = hazards_at(tier::device, first);
      tracker_.follow(mover_.worker(), to, to.users, wait_cause::other);
      const lent_bytes lent{*this, mover_.worker(), address(tier::device, first), nullptr, used_[index_of(id)]};
      health_->starting([&] {
        mover_.gather(*backend_, address(tier::device, first), bytes{used_[index_of(id)]}, shares_.label_of(id));
      });
      stamp_collective(mover_.worker(), to);
    }
  }
  /// Adds what all ranks have in this chunk: this rank's share becomes the sum. @pre it is on the device, and the mover
  /// gathers
  void sum(chunk_id id, const chunk& chunk_state, std::uint32_t label, collective::sum how)
    requires gathers
  {
    const agent stream = mover_.worker_of_sums();
    const frame_id first = chunk_state.first_frame[tier::device];
    frame_hazards& frames = hazards_at(tier::device, first);
    tracker_.follow(stream, frames, frames.users, wait_cause::other);
    const lent_bytes lent{*this, stream, address(tier::device, first), nullptr, used_[index_of(id)]};
    health_->starting(
        [&] { mover_.sum(*backend_, address(tier::device, first), bytes{used_[index_of(id)]}, label, how); });
    stamp_collective(stream, frames);
  }

  /// Events that are no copy.
  void note(trace_event_kind what, tier where, std::uint64_t size) noexcept
  {
    if constexpr (!std::same_as<Sink, trace::null_sink>) {
      const std::uint64_t now = time();
      sink_.record({what, where, where, chunk_id::none, size, now, now});
    }
  }

 private:
  /// Bytes that an agent reads or writes; with checks, the agent is done when this object ends.
  class lent_bytes {
   public:
    lent_bytes(copy_engine& copies, agent stream, std::byte* first, std::byte* second, std::uint64_t size) noexcept
    {
      if constexpr (watch_type::sees_bytes) {
        copies_ = &copies;
        stream_ = stream;
        from_ = {first, size};
        if (second != nullptr) to_ = {second, size};
        copies.watch_->part().lend(from_), copies.watch_->part().lend(to_);
      }
    }
    lent_bytes(const lent_bytes&) = delete;
    ~lent_bytes()
    {
      if constexpr (watch_type::sees_bytes) {
        copies_->wait_for(stream_);
        copies_->watch_->part().take_back(from_), copies_->watch_->part().take_back(to_);
      }
    }

   private:
    copy_engine* copies_ = nullptr;
    agent stream_ = agent::host;
    std::span<std::byte> from_, to_;
  };

  /// With checks. An error of the agent is reported elsewhere: by its next use.
  void wait_for(agent stream) noexcept
  {
    try {
      backend_->wait(agent::host, backend_->record(stream));
    } catch (...) {  // the device is lost, and its bytes with it
    }
  }
  void poison(tier where, frame_id first, std::uint32_t count) noexcept
  {
    if constexpr (watch_type::sees_bytes) watch_->part().fresh({address(where, first), count * frame_});
  }
  void compare(chunk_id id, const chunk& chunk_state, tier where) noexcept
  {
    if constexpr (watch_type::sees_bytes) watch_->compare_chunk(id, address(where, chunk_state.first_frame[where]));
  }

  /// A frame of a tier, the first of a chunk's.
  struct frame_place {
    tier where;
    frame_id first;
  };

  /// The agent that copies over a link in this direction: two for each link.
  [[nodiscard]] static constexpr agent copier(tier from, tier to) noexcept
  {
    return to < from ? agent::to_device : agent::to_host;
  }

  void copy_frames(chunk_id id, frame_place from, frame_place to)
  {
    const bool is_load = to.where < from.where;
    const agent stream = copier(from.where, to.where);
    frame_hazards& source = hazards_at(from.where, from.first);
    frame_hazards& target = hazards_at(to.where, to.first);
    std::byte* const read = address(from.where, from.first);
    std::byte* const written = address(to.where, to.first);
    const bytes size{used_[index_of(id)]};
    order(stream, source, target);
    const lent_bytes lent{*this, stream, read, written, used_[index_of(id)]};
    health_->starting([&] {
      is_load ? mover_.bring(*backend_, written, read, size, stream)
              : mover_.take(*backend_, written, read, size, stream);
    });
    finish(stream, source, target);
    ++(is_load ? counts_.loads : counts_.write_backs);
    (is_load ? counts_.loaded : counts_.written_back) += size;
  }

  void bring_share(const chunk_share& share, frame_id first)
    requires gathers
  {
    const agent stream = mover_.worker_of_shares();
    const chunk& parent = (*places_)[share.chunk];
    expects(parent.live > 0, "a gathered chunk was used before its share was filled");
    const tier where = parent.has_frames(tier::device) ? tier::device : tier::host;
    const frame_id frame = parent.first_frame[where];
    frame_hazards& from = hazards_at(where, frame);
    frame_hazards& to = hazards_at(tier::device, first);
    order(stream, from, to);
    const lent_bytes lent{*this, stream, address(where, frame) + share.offset,
                          address(tier::device, first) + share.begin, share.size};
    health_->starting([&] {
      backend_->copy(address(tier::device, first) + share.begin, address(where, frame) + share.offset,
                     bytes{share.size}, stream);
    });
    finish(stream, from, to);
    ++counts_.loads;
    counts_.loaded += bytes{share.size};
  }
  void stamp_collective(agent stream, frame_hazards& frames)
    requires gathers
  {
    hazard_tracker<Backend>::stamp_copy(tracker_.copied(stream), frames, true);
  }

  void order(agent stream, frame_hazards& from, frame_hazards& to)
  {
    tracker_.follow(stream, from, from.writers, wait_cause::other);
    tracker_.follow(stream, to, to.users, wait_cause::other);
  }

  void finish(agent stream, frame_hazards& from, frame_hazards& to)
  {
    const event done = tracker_.copied(stream);
    hazard_tracker<Backend>::stamp_copy(done, to, true);
    hazard_tracker<Backend>::stamp_copy(done, from, false);
  }

  [[nodiscard]] std::uint64_t time() const noexcept
  {
    if constexpr (std::same_as<Sink, trace::null_sink>)
      return 0;
    else
      return backend_->now();
  }

  void tell(trace_event_kind what, tier from, tier to, chunk_id id, std::uint64_t begin) noexcept
  {
    if constexpr (!std::same_as<Sink, trace::null_sink>)
      sink_.record({what, from, to, id, used_[index_of(id)], begin, time()});
  }

  Backend* backend_;
  device_health* health_;
  hazard_tracker<Backend> tracker_;
  Mover mover_;
  Sink sink_;
  sequence<std::uint64_t> used_;
  per_tier<sequence<frame_hazards>> hazards_;  // by frame, and one for the rest of the arena
  per_tier<std::byte*> arena_;
  std::uint64_t frame_ = 1;
  report counts_;  // of these, only what is moved
  chunk_shares shares_;
  const chunk_table* places_ = nullptr;
  watch_type* watch_ = nullptr;
};

}  // namespace chunkmem::inline v0
