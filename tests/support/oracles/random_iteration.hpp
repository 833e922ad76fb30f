// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <support/oracles/cell_memory.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/record_builder.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace support {

inline constexpr std::uint64_t frame_bytes = 512;

/// A model and one legal iteration of it that can be repeated: every read was filled before or written.
struct random_iteration {
  std::vector<std::uint32_t> frames_of_chunk;
  std::vector<std::uint32_t> chunk_of_slot;
  std::vector<std::uint8_t> filled;  ///< by slot: holds bytes before the iteration
  chunkmem::access_record record;

  [[nodiscard]] std::uint32_t chunks() const { return static_cast<std::uint32_t>(frames_of_chunk.size()); }
  [[nodiscard]] std::uint32_t slots() const { return static_cast<std::uint32_t>(chunk_of_slot.size()); }
};

/// The possible contents of a random iteration.
struct iteration_traits {
  std::uint32_t entries = 40;
  std::uint32_t longest_chunk = 1;  ///< in frames
  std::uint32_t most_open = 3;      ///< pins and leases at once
  bool host = true;
  bool drops = true;
  bool device_leases = true;
  bool host_leases = false;
};

/// Rolls the entries of an iteration, keeping the rules of the engine: a chunk is written in one place at a time.
class iteration_roller {
 public:
  iteration_roller(dice& dice, const iteration_traits& traits) : dice_{dice}, traits_{traits}
  {
    made_.frames_of_chunk.resize(dice.between(2, 7));
    for (std::uint32_t& frames : made_.frames_of_chunk) frames = dice.between(1, traits.longest_chunk);
    made_.chunk_of_slot.resize(made_.chunks() + dice.below(4));
    for (std::uint32_t slot = 0; slot < made_.slots(); ++slot)
      made_.chunk_of_slot[slot] = slot < made_.chunks() ? slot : dice.below(made_.chunks());
    made_.filled.resize(made_.slots());
    for (std::uint8_t& each : made_.filled) each = dice.one_in(4) ? 0 : 1;
    live_ = made_.filled;
    pins_.resize(made_.chunks());
  }

  random_iteration operator()()
  {
    while (build_.size() < traits_.entries) {
      while (!open_.empty() && (open_.size() >= traits_.most_open || dice_.one_in(2))) end_one();
      roll();
    }
    while (!open_.empty()) end_one();
    for (std::uint32_t slot = 0; slot < made_.slots(); ++slot)
      // so that it can be repeated
      if (made_.filled[slot] > live_[slot]) build_.brief(slot, chunkmem::entry_kind::write);
    made_.record = build_.finish(made_.chunk_of_slot, made_.chunks());
    return std::move(made_);
  }

 private:
  struct pins {
    std::uint32_t device = 0;
    std::uint32_t host = 0;
    std::uint32_t host_writers = 0;
  };
  struct open_entry {
    std::uint32_t access_index;
    std::uint32_t slot;  // `never` for a lease
    chunkmem::entry_kind kind;
  };

  void roll()
  {
    using namespace chunkmem;
    const std::uint32_t slot = dice_.below(made_.slots());
    pins& held = pins_[made_.chunk_of_slot[slot]];
    const std::uint32_t what = dice_.below(20);
    if (what == 0 && traits_.device_leases) return lease(entry_kind::lease_device);
    if (what == 1 && traits_.host_leases) return lease(entry_kind::lease_host);
    if (what == 2 && traits_.drops) {
      const bool pinned =
          std::any_of(open_.begin(), open_.end(), [&](const open_entry& it) { return it.slot == slot; });
      if (live_[slot] == 0 || pinned) return;
      build_.drop(slot);
      live_[slot] = 0;
      return;
    }
    const chunkmem::access how = live_[slot] == 0 ? access::write : static_cast<chunkmem::access_mode>(dice_.below(3));
    const bool host = traits_.host && dice_.one_in(4);
    if (host ? held.device > 0 : held.host_writers > 0 || (writes(how) && held.host > 0)) return;
    const entry_kind kind = kind_of(how, host ? memory_location::host : memory_location::device);
    ++(host ? held.host : held.device);
    if (host && writes(how)) ++held.host_writers;
    live_[slot] = 1;
    open_.push_back({build_.access(slot, kind), slot, kind});
  }

  void lease(chunkmem::entry_kind kind)
  {
    const std::uint64_t size = 256 * std::uint64_t{dice_.between(1, 5)};
    open_.push_back({build_.lease(kind, size), chunkmem::access_record::never, kind});
  }

  void end_one()
  {
    using namespace chunkmem;
    std::swap(dice_.pick(open_), open_.back());
    const open_entry ended = open_.back();
    open_.pop_back();
    build_.release(ended.access_index);
    if (is_lease(ended.kind)) return;
    pins& held = pins_[made_.chunk_of_slot[ended.slot]];
    const bool host = place_of(ended.kind) == memory_location::host;
    --(host ? held.host : held.device);
    if (host && writes(access_of(ended.kind))) --held.host_writers;
  }

  dice& dice_;
  iteration_traits traits_;
  random_iteration made_;
  record_builder build_;
  std::vector<std::uint8_t> live_;
  std::vector<pins> pins_;
  std::vector<open_entry> open_;
};

inline random_iteration roll_iteration(dice& dice, const iteration_traits& traits)
{
  return iteration_roller{dice, traits}();
}

/// A cache for an iteration, with the given frames in each tier.
template <class Eviction>
chunkmem::chunk_cache<Eviction> cache_for(const random_iteration& it, std::uint32_t device_frames,
                                          std::uint32_t host_frames)
{
  chunkmem::chunk_cache<Eviction> state;
  state.reset(it.frames_of_chunk, it.slots());
  constexpr chunkmem::bytes frame{frame_bytes};
  state.reset_tier(chunkmem::tier::device, frame * device_frames, frame, device_frames);
  state.reset_tier(chunkmem::tier::host, frame * host_frames, frame, host_frames);
  return state;
}

/// Writes every chunk on the host; the slots of the chunks have their numbers.
template <class Eviction, class Mover>
void fill_on_host(chunkmem::chunk_cache<Eviction>& state, Mover& mover)
{
  using namespace chunkmem;
  for (std::uint32_t index = 0; index < state.chunks(); ++index) {
    state.acquire(slot_id{index}, chunk_id{index}, entry_kind::write_on_host, access_record::never, access_index{0},
                  mover);
    state.unpin(tier::host, chunk_id{index}, true);
  }
}

/// Runs an iteration on a cache and on memory, entry by entry, and checks every read.
template <class Eviction>
class iteration_runner {
 public:
  iteration_runner(const random_iteration& it, chunkmem::chunk_cache<Eviction>& state, cell_memory& memory)
      : it_{it}, state_{state}, memory_{memory}, lease_at_(it.record.size(), 0)
  {
  }

  /// Writes the bytes that the iteration expects, on the host or on the device.
  void fill(bool on_device)
  {
    using namespace chunkmem;
    for (std::uint32_t slot = 0; slot < it_.slots(); ++slot)
      if (it_.filled[slot] != 0) {
        const entry_kind kind = on_device ? entry_kind::write : entry_kind::write_on_host;
        use(slot, kind, access_record::never, 0);
        end_use(slot, kind);
      }
  }

  /// @param before   `before(access)`: called between the releases and the entry of an access; returns the planned
  ///   place of a lease, or no_place
  template <class Before>
  void run(bool profiled, Before before)
  {
    using namespace chunkmem;
    const access_record& record = it_.record;
    state_.begin_round();
    std::size_t ended = 0;
    for (std::uint32_t now = 0; now <= record.size(); ++now) {
      for (; ended < record.releases().size() && record.releases()[ended].until <= now; ++ended)
        end(record.releases()[ended].access_index);
      if (now == record.size()) break;
      const std::uint64_t place = before(now);
      const access_entry& entry = record.entries()[now];
      if (is_lease(entry.kind))
        lease(now, place);
      else if (entry.kind == entry_kind::drop)
        state_.drop(slot_id{entry.slot}, chunk_id{it_.chunk_of_slot[entry.slot]}, memory_);
      else
        use(entry.slot, entry.kind, profiled ? entry.next_of_chunk : access_record::never, now);
    }
  }
  void run(bool profiled)
  {
    run(profiled, [](std::uint32_t) { return chunkmem::tier_space::no_place; });
  }

 private:
  void use(std::uint32_t slot, chunkmem::entry_kind kind, std::uint32_t next_use, std::uint32_t now)
  {
    using namespace chunkmem;
    const chunk_id chunk{it_.chunk_of_slot[slot]};
    state_.acquire(slot_id{slot}, chunk, kind, next_use, access_index{now}, memory_);
    if (access_of(kind) != access::write) memory_.read(slot, tier_of(kind), state_[chunk]);
    if (writes(access_of(kind))) memory_.write(slot, tier_of(kind), state_[chunk]);
  }
  void end_use(std::uint32_t slot, chunkmem::entry_kind kind)
  {
    using namespace chunkmem;
    const chunk_id chunk{it_.chunk_of_slot[slot]};
    if (writes(access_of(kind)))
      memory_.write(slot, tier_of(kind), state_[chunk]);  // to the last access of the pin
    else
      memory_.read(slot, tier_of(kind), state_[chunk]);
    state_.unpin(tier_of(kind), chunk, writes(access_of(kind)));
  }
  void lease(std::uint32_t now, std::uint64_t planned)
  {
    using namespace chunkmem;
    const tier where = tier_of(it_.record.entries()[now].kind);
    const std::uint64_t size = it_.record.details()[now].bytes;
    if (planned == tier_space::no_place)
      lease_at_[now] = state_.lease(where, size, memory_);
    else if (state_.try_lease(where, planned, size, memory_))
      lease_at_[now] = planned;
    else
      memory_.blame("a planned lease did not fit");
    state_.space(where).for_frames(lease_at_[now], size, [&](frame_id frame) { memory_.scribble(where, frame); });
  }
  void end(std::uint32_t access_index)
  {
    const chunkmem::access_entry& entry = it_.record.entries()[access_index];
    if (!is_lease(entry.kind)) return end_use(entry.slot, entry.kind);
    state_.end_lease(tier_of(entry.kind), lease_at_[access_index], it_.record.details()[access_index].bytes, memory_);
  }

  const random_iteration& it_;
  chunkmem::chunk_cache<Eviction>& state_;
  cell_memory& memory_;
  std::vector<std::uint64_t> lease_at_;
};

}  // namespace support
