// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <support/oracles/random_iteration.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace support {

/// A chunk_cache under random legal operations, with a memory that notices every wrong byte.
template <class Eviction>
class chunk_cache_trial {
 public:
  chunk_cache_trial(std::uint64_t seed, std::uint32_t longest_chunk, bool tight_host) : dice_{seed}
  {
    iteration_traits traits{.entries = 0, .longest_chunk = longest_chunk};
    model_ = roll_iteration(dice_, traits);
    std::uint32_t all = 0;
    for (const std::uint32_t frames : model_.frames_of_chunk) all += frames;
    const std::uint32_t device = dice_.between(1, all + 1);
    const std::uint32_t host = tight_host ? dice_.between(1, all) : all + 2;
    state_ = cache_for<Eviction>(model_, device, host);
    memory_ = cell_memory{model_.chunk_of_slot, device, host};
    live_.assign(model_.slots(), false);
    frames_[chunkmem::tier::device] = device;
    frames_[chunkmem::tier::host] = host;
    if constexpr (chunkmem::bounded_eviction<Eviction>)
      for (std::uint32_t chunk = 0; chunk < model_.chunks(); ++chunk)
        places_.push_back(dice_.one_in(6) ? UINT32_MAX : dice_.below(device + 1));
  }

  /// One random operation and all checks. @return   the mistake, or an empty text
  std::string step()
  {
    using namespace chunkmem;
    if constexpr (bounded_eviction<Eviction>) state_.policy().settle_in(places_);
    const chunk_cache<Eviction> before = state_;
    try {
      operate();
    } catch (const out_of_memory& refused) {
      ++shortages;
      if (const std::string wrong = check_shortage(refused.shortage(), before); !wrong.empty()) return wrong;
    }
    return check();
  }

  /// Ends all pins and leases and reads every slot that holds bytes, where its chunk is.
  std::string settle()
  {
    using namespace chunkmem;
    while (!pins_.empty()) end_pin(pins_.size() - 1);
    while (!leases_.empty()) end_lease(leases_.size() - 1);
    for (std::uint32_t slot = 0; slot < model_.slots(); ++slot) {
      const chunk& it = state_[chunk_id{model_.chunk_of_slot[slot]}];
      if (!live_[slot]) continue;
      if (it.has_frames(tier::device)) memory_.read(slot, tier::device, it);
      if (it.is_valid(tier::host)) memory_.read(slot, tier::host, it);
    }
    return check();
  }

  std::uint64_t shortages = 0;
  std::uint64_t came_to_its_place = 0;
  std::uint64_t moved_to_its_place = 0;  ///< from another one
  std::uint64_t came_early = 0;
  [[nodiscard]] const cell_memory& memory() const { return memory_; }
  [[nodiscard]] std::uint64_t reclaims() const { return state_.reclaims(); }

 private:
  struct held_pin {
    std::uint32_t slot;
    chunkmem::entry_kind kind;
    chunkmem::frame_id place;  // of its chunk, which must not move
  };
  struct held_lease {
    chunkmem::tier where;
    std::uint64_t begin;
    std::uint64_t size;
  };

  void operate()
  {
    using namespace chunkmem;
    const std::uint32_t what = dice_.below(20);
    const chunk_id id{dice_.below(model_.chunks())};
    if (what < 9) return pin(dice_.below(model_.slots()));
    if (what < 14 && !pins_.empty()) return end_pin(dice_.below(static_cast<std::uint32_t>(pins_.size())));
    if (what == 14) return drop(dice_.below(model_.slots()));
    if (what == 15) return lease();
    if (what == 16 && !leases_.empty()) return end_lease(dice_.below(static_cast<std::uint32_t>(leases_.size())));
    if constexpr (bounded_eviction<Eviction>)
      if (dice_.one_in(4)) return bring_early(id);
    if (what == 17) (void)state_.try_evict(id, memory_);
    if (what == 18) (void)state_.try_write_back(id, memory_);
    const chunk& it = state_[id];
    if (what == 19) (void)(state_.try_load(id, frame_id{dice_.below(frames_[tier::device])}, it.live > 0, memory_));
  }

  void pin(std::uint32_t slot)
  {
    using namespace chunkmem;
    const chunk& it = state_[chunk_id{model_.chunk_of_slot[slot]}];
    const chunkmem::access how = live_[slot] ? static_cast<chunkmem::access_mode>(dice_.below(3)) : access::write;
    const bool host = dice_.one_in(3);
    // The engine refuses these.
    if (host ? it.pins[tier::device] > 0 && (writes(how) || !it.is_valid(tier::host))
             : it.writers > 0 || (writes(how) && it.pins[tier::host] > 0))
      return;
    const entry_kind kind = kind_of(how, host ? memory_location::host : memory_location::device);
    const tier where = host ? tier::host : tier::device;
    asked_ = chunk_id{model_.chunk_of_slot[slot]};
    asked_frames_ = it.frames;
    std::uint32_t next_use = access_record::never;
    if constexpr (bounded_eviction<Eviction>)
      if (dice_.one_in(4)) next_use = dice_.below(9);  // else a plan gives the chunk up
    const chunk was = it;
    state_.acquire(slot_id{slot}, asked_, kind, next_use, access_index{model_.chunk_of_slot[slot]}, memory_);
    note_place(where, was, it);
    if (how != access::write) memory_.read(slot, where, it);
    if (writes(how)) memory_.write(slot, where, it);
    live_[slot] = true;
    pins_.push_back({slot, kind, it.first_frame[where]});
  }

  /// A plan has frames for each chunk: the chunk is there, or the frames were not available.
  void note_place(chunkmem::tier where, const chunkmem::chunk& was, const chunkmem::chunk& now)
  {
    if (where != chunkmem::tier::device || places_.empty()) return;
    const bool is_there = index_of(now.first_frame[where]) == places_[index_of(asked_)];
    const bool was_there = was.first_frame[where] == now.first_frame[where];
    came_to_its_place += is_there && !was_there ? 1 : 0;
    moved_to_its_place += is_there && !was_there && was.has_frames(where) ? 1 : 0;
  }

  void bring_early(chunkmem::chunk_id id)
    requires chunkmem::bounded_eviction<Eviction>
  {
    const chunkmem::frame_id first{dice_.one_in(3) ? UINT32_MAX : dice_.below(frames_[chunkmem::tier::device])};
    came_early +=
        state_.bring_early(id, first, dice_.below(9), chunkmem::access_index{dice_.below(9)}, memory_) ? 1 : 0;
  }

  void end_pin(std::size_t which)
  {
    using namespace chunkmem;
    std::swap(pins_[which], pins_.back());
    const held_pin ended = pins_.back();
    pins_.pop_back();
    const chunk_id chunk{model_.chunk_of_slot[ended.slot]};
    const bool host = place_of(ended.kind) == memory_location::host;
    const bool writing = writes(access_of(ended.kind));
    if (writing) memory_.write(ended.slot, host ? tier::host : tier::device, state_[chunk]);
    state_.unpin(tier_of(ended.kind), chunk, writing);
  }

  void drop(std::uint32_t slot)
  {
    if (std::any_of(pins_.begin(), pins_.end(), [&](const held_pin& it) { return it.slot == slot; })) return;
    state_.drop(chunkmem::slot_id{slot}, chunkmem::chunk_id{model_.chunk_of_slot[slot]}, memory_);
    live_[slot] = false;
  }

  void lease()
  {
    using namespace chunkmem;
    const tier where = dice_.one_in(3) ? tier::host : tier::device;
    const std::uint64_t size = 256 * std::uint64_t{dice_.between(1, 5)};
    asked_ = chunk_id::none;
    asked_frames_ = 0;
    const std::uint64_t begin = state_.lease(where, size, memory_);
    state_.space(where).for_frames(begin, size, [&](frame_id frame) { memory_.scribble(where, frame); });
    leases_.push_back({where, begin, size});
  }

  void end_lease(std::size_t which)
  {
    std::swap(leases_[which], leases_.back());
    const held_lease ended = leases_.back();
    leases_.pop_back();
    state_.end_lease(ended.where, ended.begin, ended.size, memory_);
  }

  /// Whether some window of `count` frames holds only evictable bytes.
  bool window_could_open(chunkmem::tier where, std::uint32_t count) const
  {
    const chunkmem::tier_space& space = state_.space(where);
    for (std::uint32_t first = 0; first + count <= frames_[where]; ++first) {
      bool possible = true;
      for (std::uint32_t index = first; index < first + count; ++index) {
        const chunkmem::chunk_id who = space.occupant(chunkmem::frame_id{index});
        if (who == chunkmem::tier_space::free_frame) continue;
        possible = possible && who != chunkmem::tier_space::leased_frame && state_.table().may_leave(where, who);
      }
      if (possible) return true;
    }
    return false;
  }

  /// Bytes of the tier that cannot be evicted now: leases, pinned chunks, and on the host the only copies.
  std::uint64_t bytes_that_stay(chunkmem::tier where) const
  {
    using namespace chunkmem;
    std::uint64_t bytes = 0;
    for (const held_lease& it : leases_) bytes += it.where == where ? it.size : 0;
    for (const chunk_id each : state_.table().chunk_ids()) {
      const chunk& it = state_[each];
      const bool pinned = std::any_of(pins_.begin(), pins_.end(), [&](const held_pin& held) {
        return chunk_id{model_.chunk_of_slot[held.slot]} == each &&
               (place_of(held.kind) == chunkmem::memory_location::host) == (where == tier::host);
      });
      const bool only_copy = where == tier::host && it.is_valid(tier::host) && !it.has_frames(tier::device);
      if (it.first_frame[where] != chunk::nowhere && (pinned || only_copy)) bytes += it.frames * frame_bytes;
    }
    return bytes;
  }

  std::string check_shortage(const chunkmem::memory_shortage& said, const chunkmem::chunk_cache<Eviction>& before) const
  {
    using namespace chunkmem;
    if (said.capacity != frames_[said.where] * frame_bytes) return "a shortage with another capacity";
    if (said.pinned != bytes_that_stay(said.where)) return "a shortage that miscounts what cannot leave";
    const bool scattered = said.pinned + said.requested <= said.capacity;
    if (said.needed != said.requested + (scattered ? said.capacity : said.pinned))
      return "a shortage whose numbers do not add up";
    if (said.needed <= said.capacity) return "a shortage of a capacity that is enough";
    if (said.where == tier::device && !state_.table().same_places(before.table()))
      return "a shortage on the device changed something";
    if (asked_ != chunk_id::none && said.where == tier::device && window_could_open(tier::device, asked_frames_))
      return "a shortage on the device although a window could open";
    const auto count = static_cast<std::uint32_t>(said.requested / frame_bytes);
    if (asked_ != chunk_id::none && said.where == tier::host && window_could_open(tier::host, count))
      return "a shortage on the host although a window could open";
    return {};
  }

  std::string check()
  {
    using namespace chunkmem;
    if (!memory_.mistake.empty()) return memory_.mistake;
    for (const tier where : {tier::device, tier::host}) {
      std::vector<chunk_id> expected(frames_[where], tier_space::free_frame);
      std::uint64_t bytes_held = 0;
      for (const chunk_id each : state_.table().chunk_ids()) {
        const chunk& it = state_[each];
        if (it.first_frame[where] == chunk::nowhere) continue;
        const std::uint32_t first = index_of(it.first_frame[where]);
        bytes_held += it.frames * frame_bytes;
        for (std::uint32_t part = 0; part < it.frames; ++part) {
          if (first + part >= expected.size() || expected[first + part] != tier_space::free_frame)
            return "two chunks share a frame";
          expected[first + part] = each;
        }
      }
      for (const held_lease& it : leases_) {
        if (it.where != where) continue;
        bytes_held += it.size;
        state_.space(where).for_frames(it.begin, it.size, [&](frame_id frame) {
          if (state_.table().has(expected[index_of(frame)])) memory_.blame("a chunk and a lease share a frame");
          expected[index_of(frame)] = tier_space::leased_frame;
        });
      }
      for (std::uint32_t frame = 0; frame < expected.size(); ++frame)
        if (state_.space(where).occupant(frame_id{frame}) != expected[frame])
          return "a tier does not know the owner of a frame";
      if (state_.space(where).in_use() != bytes_held || bytes_held > frames_[where] * frame_bytes)
        return "bytes were lost or exceeded";
    }
    std::map<chunk_id, std::uint32_t> live;
    for (std::uint32_t slot = 0; slot < model_.slots(); ++slot) {
      live[chunk_id{model_.chunk_of_slot[slot]}] += live_[slot] ? 1 : 0;
      if (state_.table().is_live(slot_id{slot}) != live_[slot])
        return "a slot holds bytes, or not, against expectation";
    }
    for (const auto& [at, count] : live) {
      const chunk& it = state_[at];
      if (it.live != count) return "a chunk miscounts its live tensors";
      if (count > 0 && !it.has_frames(tier::device) && !it.is_valid(tier::host)) return "a chunk with bytes is nowhere";
      if (it.is_valid(tier::host) && it.first_frame[tier::host] == chunk::nowhere)
        return "a valid host copy without a place";
    }
    for (const held_pin& it : pins_) {
      const chunk& parent = state_[chunk_id{model_.chunk_of_slot[it.slot]}];
      if (it.place != parent.first_frame[tier_of(it.kind)]) return "a pinned chunk moved";
    }
    return memory_.mistake;
  }

  dice dice_;
  random_iteration model_;
  chunkmem::chunk_cache<Eviction> state_{};
  cell_memory memory_{{}, 0, 0};
  std::vector<bool> live_;
  std::vector<held_pin> pins_;
  std::vector<held_lease> leases_;
  chunkmem::per_tier<std::uint32_t> frames_;
  chunkmem::chunk_id asked_{0};
  std::uint32_t asked_frames_ = 0;
  std::vector<std::uint32_t> places_;  // by chunk, where a plan has frames for them
};

}  // namespace support
