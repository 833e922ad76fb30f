// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/gathered_chunks.hpp>
#include <chunkmem/manager/gradients.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/replay.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <utility>

// memory_requirement is the need of a model, rehearsal finds it, the refuse_ functions compare it with capacities, and
// rehearse_step runs the step of a trainer without bytes.

namespace chunkmem::inline v0 {

/// The bytes of the chunks that no tensor fills, at the present size of chunks and at a better size.
///
///     const chunk_waste seen = m.seal().waste;
///     if (seen.now.percent() > 5) std::cout << "take chunk_bytes of " << seen.better.chunk_bytes.count() << " B\n";
struct chunk_waste {
  /// At one size of chunks.
  struct at_size {
    bytes chunk_bytes;  ///< of one frame
    bytes chunks;       ///< all chunks, whole frames
    bytes tensors;      ///< the bytes of all tensors in them

    [[nodiscard]] bytes wasted() const noexcept { return chunks - tensors; }
    /// The waste in percent of the chunks, from 0 to 100.
    [[nodiscard]] double percent() const noexcept
    {
      if (chunks == bytes{}) return 0;
      return 100 * static_cast<double>(wasted().count()) / static_cast<double>(chunks.count());
    }
  };
  static constexpr double little = 0.5;  ///< percent

  at_size now;  ///< as the manager is sealed
  /// As least_waste_chunks would seal it; `now` where that wastes little, or where the layout cannot be searched.
  at_size better;
};

/// The memory that a model needs, known before anything is allocated.
///
///     const memory_requirement need = m.rehearse(step);
///     std::cout << need;  // a line for each number in bytes; or a field, such as need.smallest_device.count()
struct memory_requirement {
  /// Bytes of tensors, by role.
  struct per_role {
    bytes values[role_count];
    [[nodiscard]] bytes& operator[](role part) noexcept { return values[static_cast<std::size_t>(part)]; }
    [[nodiscard]] const bytes& operator[](role part) const noexcept { return values[static_cast<std::size_t>(part)]; }
  };
  /// The need on a device of another capacity.
  struct other_device {
    bytes device;        ///< its capacity, as given to `rehearse`
    bytes least_device;  ///< `device` where the step runs on it, else the next larger capacity on which it runs
    bytes host;          ///< least host capacity with a device of `least_device`
  };

  per_role by_role;
  bytes chunk_bytes;              ///< of one frame, as given or as searched
  bytes chunks;                   ///< all chunks in whole frames, all in one tier
  bytes largest_leases;           ///< the most that was leased at once on the device; from a rehearsal
  bytes everything;               ///< `chunks` and `largest_leases`, in whole frames: all at once in one tier
  bytes smallest_device;          ///< least device capacity; from a rehearsal exact, else that of the largest tensor
  bytes smallest_host;            ///< least host capacity with the given device capacity; from a rehearsal
  chunk_waste waste;              ///< from seal; nothing from a rehearsal, or of a sharded_model
  sequence<other_device> others;  ///< of the `others` that were given to `rehearse`
  bool rehearsed = false;

  /// The least host capacity with a device of another size. O(others)
  ///
  ///     const bytes cards[] = {24_GiB, 80_GiB};
  ///     const memory_requirement need = m.rehearse(step, rehearse_on::nothing, nullptr, cards);
  ///     const bytes host = need.smallest_host_for(24_GiB);
  /// @throws usage_error    the rehearsal was not given this size
  /// @throws config_error   the step does not run on such a device, however large the host is
  [[nodiscard]] bytes smallest_host_for(bytes device) const
  {
    for (const other_device& it : others) {
      if (it.device != device) continue;
      if (it.least_device > device)
        throw config_error{error_text{} << "chunkmem: no host is large enough for a device of " << device.count()
                                        << " B: this step needs a device of at least " << it.least_device.count()
                                        << " B"};
      return it.host;
    }
    throw usage_error{error_text{} << "chunkmem: the rehearsal was not given a device of " << device.count()
                                   << " B (pass this size to rehearse, among its other devices)"};
  }

  /// One line for each number: `name value`, as in a report. Roles without tensors are left out, and without a
  /// rehearsal so are its numbers. `others` has no lines.
  template <class Traits>
  friend std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out,
                                                      const memory_requirement& it)
  {
    const auto line = [&](std::string_view name, bytes size) {
      out << name << ' ' << std::to_string(size.count()) << '\n';
    };
    for (std::size_t part = 0; part < role_count; ++part)
      if (it.by_role.values[part] != bytes{})
        line(std::string{name_of(static_cast<role>(part))} + "_bytes", it.by_role.values[part]);
    line("chunk_bytes", it.chunk_bytes);
    line("chunks_bytes", it.chunks);
    line("everything_bytes", it.everything);
    line("smallest_device_bytes", it.smallest_device);
    if (!it.rehearsed) return out;
    line("largest_leases_bytes", it.largest_leases);
    line("smallest_host_bytes", it.smallest_host);
    return out;
  }
};

/// How the chunks of a model fill tiers of given sizes. A view: the objects that it refers to outlive it.
///
/// `lay_out(target, capacity)` prepares the residency of a manager or of a simulation.
struct model_frames {
  const registry& tensors;  ///< sealed, for all but `size`
  const gathered_chunks& gathered;
  bytes size;  ///< of a frame in every tier

  /// Whole frames of a tier, as many as could ever be used. The rest of the arena serves leases. O(chunks)
  [[nodiscard]] std::uint32_t in(bytes capacity) const noexcept
  {
    constexpr std::uint64_t most = UINT32_MAX / 2;
    // Frame runs of different lengths fragment the room: this many more frames make up for it (Robson 1971).
    const std::uint64_t all = tensors.total_frames();
    std::uint64_t useful = all;
    for (std::uint32_t longest = tensors.longest_frame_run(); longest > 1; longest /= 2) useful += all;
    return static_cast<std::uint32_t>(std::min({capacity.count() / size.count(), useful, most}));
  }

  /// All chunks fit on the device at once.
  [[nodiscard]] bool fit_on_device(const chunk_table& chunks) const noexcept
  {
    return chunks.space(tier::device).frames() >= tensors.total_frames();
  }

  /// Sets up `target` for these capacities: nothing lies anywhere. Allocates bookkeeping only.
  template <eviction_policy Eviction>
  void lay_out(chunk_cache<Eviction>& target, per_tier<bytes> capacity) const
  {
    target.reset(tensors.frames_of_chunk(), static_cast<std::uint32_t>(tensors.slots().size()));
    for (const tier where : all_tiers) target.reset_tier(where, capacity[where], size, in(capacity[where]));
    gathered.for_each_loaded_from_shares(tensors, [&](chunk_id chunk) { target.make_derived(chunk); });
    gathered.for_each_kept(tensors, [&](chunk_id chunk) { target.fill_by_ranks(chunk); });
    gathered.for_each_summed(tensors, [&](chunk_id chunk) { target.sum_over_ranks(chunk); });
  }
};

/// Finds the smallest capacities at which a recorded step runs, by running it with the manager's own decisions.
///
///     rehearsal<Eviction, Transfer> trial{frames, Eviction{}, record, filled};
///     const std::uint64_t least = trial.smallest_device(host, 1'000);  // frames; 1001 where 1000 are too few
///
/// The step is tried from the starts that a manager returns to: as the recorded iteration after the weights were filled
/// and on an empty device, and with a known record on an empty device. Cost: two to thirty-two replays for each
/// capacity tried; bookkeeping only, no bytes.
template <class Eviction, class Transfer>
class rehearsal {
 public:
  /// The record holds for a device of any size.
  /// @param filled   by slot: it held bytes before the step
  rehearsal(const model_frames& frames, const Eviction& eviction, const access_record& record,
            const sequence<std::uint8_t>& filled)
      : rehearsal{frames, eviction, settles_always}
  {
    add(record, filled);
  }
  /// Starts without a step; see `add`.
  /// @param settle   `settle(device)`: adapts the records and filled slots to a device of this size; false where there
  ///   are none. Called before each replay, may throw, outlives this object
  rehearsal(const model_frames& frames, const Eviction& eviction, call_ref<bool(bytes)> settle)
      : frames_{frames}, state_{eviction}, settle_{settle}
  {
  }
  /// Adds another variant of the step: all variants have to run, in any order.
  void add(const access_record& record, const sequence<std::uint8_t>& filled) { steps_.push_back({&record, &filled}); }

  /// The step runs with these capacities.
  [[nodiscard]] bool fits(per_tier<bytes> capacity)
  {
    if (!settle_(capacity[tier::device])) return false;
    for (const step& it : steps_)
      if (!runs_from(it, capacity, origin::filled) || !runs_from(it, capacity, origin::cleared) ||
          !runs_from(it, capacity, origin::known))
        return false;
    return true;
  }

  /// A lower bound for all decisions: the most that is pinned and leased at once, in whole frames.
  [[nodiscard]] std::uint64_t pinned_frames() const
  {
    std::uint64_t most = 0;
    for (const step& it : steps_) most = std::max(most, pinned_frames(*it.record));
    return most;
  }

  /// The least device capacity in whole frames, from `start` up, with this host capacity.
  /// @return   frames, or `limit` + 1 if none fits
  [[nodiscard]] std::uint64_t smallest_device(bytes host, std::uint64_t limit, std::uint64_t start = 1)
  {
    (void)settle_(bytes{});  // where states have no room on the device, fewer are pinned there
    for (std::uint64_t frames = std::max(pinned_frames(), start); frames <= limit; ++frames)
      if (fits({{frames * frames_.size, host}})) return frames;
    return limit + 1;
  }

  /// The least host capacity in whole frames, with this device capacity. @return   frames, or `limit` if less does not
  /// fit
  [[nodiscard]] std::uint64_t smallest_host(bytes device, std::uint64_t limit)
  {
    std::uint64_t low = 0;
    std::uint64_t high = limit;
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (fits({{device, middle * frames_.size}}))
        high = middle;
      else
        low = middle + 1;
    }
    return high;
  }

 private:
  static constexpr auto settles_always = [](bytes) noexcept { return true; };
  enum class origin : std::uint8_t { filled, cleared, known };
  struct step {
    const access_record* record = nullptr;
    const sequence<std::uint8_t>* filled = nullptr;
  };

  [[nodiscard]] std::uint64_t pinned_frames(const access_record& record) const
  {
    sequence<std::uint32_t> pins(frames_.tensors.frames_of_chunk().size(), 0);
    std::uint64_t now = 0;
    std::uint64_t most = 0;
    visit_in_order(record, [&](std::uint32_t index, bool begins) {
      const access_entry& entry = record.entries()[index];
      if (entry.kind == entry_kind::lease_device) {
        now = begins ? now + record.details()[index].bytes : now - record.details()[index].bytes;
      } else if (is_access(entry.kind) && place_of(entry.kind) == memory_location::device) {
        const std::uint32_t chunk = index_of(frames_.tensors.chunk_of(slot_id{entry.slot}));
        const std::uint64_t size = frames_.tensors.frames_of_chunk()[chunk] * frames_.size.count();
        if (begins && pins[chunk]++ == 0) now += size;
        if (!begins && --pins[chunk] == 0) now -= size;
      }
      most = std::max(most, now);
    });
    return (most + frames_.size.count() - 1) / frames_.size.count();
  }

  [[nodiscard]] bool runs_from(const step& it, per_tier<bytes> capacity, origin from)
  {
    const bool as_filled = from != origin::known;
    frames_.lay_out(state_, capacity);
    log_.clear();
    try {
      for (const slot_id slot : ids<slot_id>(static_cast<std::uint32_t>(it.filled->size())))
        if ((*it.filled)[index_of(slot)] != 0 && !frames_.tensors.is_master(slot)) fill(slot, as_filled);
      for (const slot_id value : ids<slot_id>(frames_.tensors.parameters())) make_master(it, value);
      const bool holds_all = frames_.fit_on_device(state_.table());
      if (from == origin::cleared && !holds_all) return true;                            // the same as the first
      if (as_filled && (from == origin::cleared || !holds_all)) state_.evict_all(log_);  // a recording starts so
    } catch (const out_of_memory&) {
      return false;
    }
    const auto ask_again = [&] { (void)settle_(capacity[tier::device]); };  // the settler may throw to end a long trial
    return replay_.settles(*it.record, frames_.tensors.chunk_of_slot(), state_, log_, from == origin::known,
                           Transfer::plans, ask_again);
  }

  void fill(slot_id slot, bool as_filled)
  {
    const bool on_device = as_filled && !state_[frames_.tensors.chunk_of(slot)].is_gathered();
    hold(slot, kind_of(access::write, on_device ? memory_location::device : memory_location::host), [] {});
  }

  /// Makes the master as the manager does before the first iteration, where the step uses it.
  void make_master(const step& it, slot_id value)
  {
    const slot_id master = frames_.tensors.master_of(value);
    if (master == slot_id::none || (*it.filled)[index_of(master)] == 0) return;
    const auto& entries = it.record->entries();
    const auto used = std::find_if(entries.begin(), entries.end(),
                                   [&](const access_entry& entry) { return slot_id{entry.slot} == master; });
    const memory_location place = used == entries.end() ? memory_location::host : place_of(used->kind);
    hold(value, kind_of(access::read, place), [&] { hold(master, kind_of(access::write, place), [] {}); });
  }

  template <class Inside>
  void hold(slot_id slot, entry_kind kind, Inside inside)
  {
    const chunk_id chunk = frames_.tensors.chunk_of(slot);
    state_.acquire(slot, chunk, kind, access_record::never, access_index{0}, log_);
    inside();
    state_.unpin(tier_of(kind), chunk, writes(access_of(kind)));
  }

  model_frames frames_;
  sequence<step> steps_;
  chunk_cache<Eviction> state_;
  replay<Eviction> replay_;
  decision_log log_;
  call_ref<bool(bytes)> settle_;
};

/// The need by the declarations alone. @pre sealed
/// @param visits   `visits(slot)`: the slot is used on the device, so that its chunk must fit there
template <class Visits>
[[nodiscard]] memory_requirement requirement_of(const model_frames& frames, const gradient_places& gradients,
                                                Visits visits)
{
  const registry& tensors = frames.tensors;
  memory_requirement need;
  need.chunk_bytes = frames.size;
  for (std::size_t part = 0; part < role_count; ++part)
    need.by_role.values[part] = tensors.bytes_of(static_cast<role>(part));
  for (const slot_id value : ids<slot_id>(tensors.parameters()))
    if (gradients.is_lent(value)) need.by_role[role::gradient] -= bytes{tensors[tensors.gradient_of(value)].size};
  sequence<std::uint8_t> counted(tensors.frames_of_chunk().size(), 0);
  std::uint32_t largest = 0;
  // chunks of gradients that lie in their weights hold nothing
  for (const slot_id each : tensors.slot_ids()) {
    const chunk_id chunk = tensors.chunk_of(each);
    if (chunk == chunk_id::none) continue;
    const std::uint32_t of_chunk = tensors.frames_of_chunk()[index_of(chunk)];
    if (visits(each)) largest = std::max(largest, of_chunk);
    if (std::exchange(counted[index_of(chunk)], std::uint8_t{1}) == 0) need.chunks += of_chunk * frames.size;
  }
  need.everything = need.chunks;
  need.smallest_device = largest * frames.size;
  return need;
}

/// The peak of the leases of a rehearsed step.
/// @tparam Log   rehearsal_log
template <class Log>
[[nodiscard]] bytes most_leased_of(const Log& rehearsed, tier where)
{
  bytes most;
  for (const auto& it : rehearsed.turns()) most = std::max(most, most_leased(it.record, where));
  return most;
}

namespace detail {

/// Slots, kinds, bytes and ends are the same. O(entries)
[[nodiscard]] inline bool has_same_calls(const access_record& one, const access_record& other) noexcept
{
  if (one.size() != other.size()) return false;
  for (std::uint32_t index = 0; index < one.size(); ++index)
    if (one.entries()[index].slot != other.entries()[index].slot ||
        one.entries()[index].kind != other.entries()[index].kind ||
        one.details()[index].bytes != other.details()[index].bytes ||
        one.details()[index].until != other.details()[index].until)
      return false;
  return true;
}

}  // namespace detail

/// Adds the exact smallest capacities of the rehearsed step.
/// @param given    capacities of the backend
/// @param others   capacities of other devices, for memory_requirement::others
/// @param settle   `settle(device)`: adapts the rehearsed record to a device of this size; false where it cannot be
///   placed
template <class Transfer, class Eviction, class Log>
void measure_need(const model_frames& frames, const Log& rehearsed, const Eviction& eviction, per_tier<bytes> given,
                  std::span<const bytes> others, memory_requirement& need, call_ref<bool(bytes)> settle)
{
  const auto turns = rehearsed.turns();
  rehearsal<Eviction, Transfer> trial{frames, eviction, settle};
  for (const auto& it : turns) {
    if (it.iterations.empty()) trial.add(it.record, it.filled);
    const access_record* before = nullptr;
    for (const auto& each : it.iterations)
      if (const access_record* last = std::exchange(before, &each.record);
          last == nullptr || !detail::has_same_calls(*last, each.record))  // a trial repeats its record
        trial.add(each.record, each.filled);
  }
  const bytes frame = frames.size;
  need.largest_leases = most_leased_of(rehearsed, tier::device);
  need.everything = need.chunks + align_up(need.largest_leases, frame);
  const std::uint64_t all = need.everything.count() / frame.count() + 1;
  const bytes host_leases = align_up(most_leased_of(rehearsed, tier::host), frame);
  const bytes roomy = 2 * need.chunks + 2 * host_leases + frame;
  const bytes device = given[tier::device];
  const std::uint64_t largest = need.smallest_device.count() / frame.count();  // also where this step does not use it
  need.smallest_device = trial.smallest_device(roomy, 2 * all, largest) * frame;
  // One more frame can make pins cut off a frame run: a given capacity is tried as it is.
  const auto from = [&](bytes least, bytes wanted) {
    if (wanted <= least || trial.fits({{wanted, roomy}})) return least;
    return trial.smallest_device(roomy, 2 * all, wanted.count() / frame.count() + 1) * frame;
  };
  const auto beside_which = [&](bytes wanted) {
    return std::clamp(wanted, need.smallest_device, std::max(need.smallest_device, 2 * need.everything));
  };
  const auto host_beside = [&](bytes which) {
    return trial.smallest_host(which, roomy.count() / frame.count()) * frame;
  };
  for (const bytes other : others) {
    const bytes least = from(need.smallest_device, other);
    if (least <= other)
      need.others.push_back({other, other, host_beside(beside_which(other))});
    else
      need.others.push_back({other, least, bytes{}});
  }
  need.smallest_device = from(need.smallest_device, device);
  const bytes beside = beside_which(device);
  need.smallest_host = host_beside(beside);
  const bytes host = given[tier::host];  // pins can cut off frame runs there, too
  if (host > need.smallest_host && host < roomy && !trial.fits({{beside, host}})) {
    const std::uint64_t most = roomy.count() / frame.count();
    std::uint64_t count = host.count() / frame.count() + 1;
    while (count < most && !trial.fits({{beside, count * frame}})) ++count;
    need.smallest_host = count * frame;
  }
  need.rehearsed = true;
}

namespace detail {

/// One error about several sizes: each line of it is a size that must grow.
class too_small {
 public:
  explicit too_small(std::string_view what) { text_ << "chunkmem: " << what << " does not fit"; }

  /// @param what   the part that needs it, such as "the largest tensor of this model"
  /// @param chunks_help   the part might fit with smaller chunks
  void expect(std::string_view where, bytes capacity, bytes least, std::string_view what, bool chunks_help = true)
  {
    if (capacity >= least) return;
    chunks_help_ = chunks_help_ && chunks_help;
    text_ << (count_++ == 0 ? ": " : "; ") << "the " << where << " capacity is " << capacity.count() << " B, but "
          << what << " needs at least " << least.count() << " B";
  }
  /// @throws config_error   some size was too small
  void refuse(bytes chunk_bytes, std::string_view smaller)
  {
    if (count_ == 0) return;
    throw config_error{text_ << " with chunks of " << chunk_bytes.count() << " B (raise "
                             << (count_ == 1 ? "it" : "them") << (chunks_help_ ? ", or use smaller chunks" : "")
                             << smaller << ")"};
  }

 private:
  error_text text_;
  unsigned count_ = 0;
  bool chunks_help_ = true;
};

}  // namespace detail

/// The bytes of the weights, in whole frames: all exist once they were filled, if none is dropped. States of an
/// optimizer are not counted: a parameter without a gradient never has any. Nor are chunks that are gathered from
/// shares. O(slots). @pre sealed
[[nodiscard]] inline bytes bytes_of_weights(const model_frames& of)
{
  const registry& tensors = of.tensors;
  sequence<std::uint8_t> counted(tensors.frames_of_chunk().size(), 0);
  std::uint64_t frames = 0;
  for (std::uint32_t id = 0; id < tensors.tensors(); ++id) {
    const role part = tensors.info(tensor_id{id}).part;
    if (part != role::parameter && part != role::frozen) continue;
    const std::uint32_t chunk = index_of(tensors.chunk_of(tensor_id{id}));
    if (std::exchange(counted[chunk], std::uint8_t{1}) == 0) frames += tensors.frames_of_chunk()[chunk];
  }
  return frames * of.size;
}

/// @param given   capacities of the backend
/// @throws config_error   a tier is too small for the declarations alone; names each size that must grow
inline void refuse_too_small_for_model(const model_frames& frames, per_tier<bytes> given,
                                       const memory_requirement& need)
{
  const auto whole_frames = [&](tier where) { return given[where].count() / frames.size.count() * frames.size; };
  detail::too_small sizes{"this model"};
  // the tensor has more bytes than its whole frames but the last
  sizes.expect("device", given[tier::device], need.smallest_device, "the largest tensor of this model",
               given[tier::device] + frames.size > need.smallest_device);
  const bytes weights = bytes_of_weights(frames);
  const bytes device = std::max(whole_frames(tier::device), need.smallest_device);
  sizes.expect("host", whole_frames(tier::host), weights > device ? weights - device : bytes{},
               "the part of the weights that the device does not hold",
               need.by_role[role::parameter] + need.by_role[role::frozen] <= given[tier::device] + given[tier::host]);
  sizes.refuse(frames.size, "; rehearse(step) says what a step needs");
}

/// @param given   capacities of the backend
/// @throws config_error   a tier is too small for the rehearsed step; names each size that must grow
inline void refuse_too_small_for_step(per_tier<bytes> given, const memory_requirement& need)
{
  detail::too_small sizes{"this step"};
  sizes.expect("device", given[tier::device], need.smallest_device, "this step");
  sizes.expect("host", given[tier::host], need.smallest_host, "this step");
  sizes.refuse(need.chunk_bytes, " or batches");
}

/// The bytes behind pins and leases of a rehearsal.
enum class rehearse_on : std::uint8_t {
  nothing,  ///< null: kernels are skipped where `rehearsing()` is true. Costs no memory; on every backend
  /// Scratch bytes, so that plain loops need no test for null. Pins for reading see zeros that must not be written. All
  /// other pins and all leases share one block, whose contents are arbitrary. So no value may decide what the step
  /// does, no value that the step wrote may be an index, and floating-point traps have to be off. Kernels on streams
  /// run in any order. Costs host memory outside of the budget for the time of the rehearsal: for reads a block of the
  /// largest tensor's size; for writes a block of up to 1.5 times the largest tensor or lease, and the smaller blocks
  /// before it. Costs the time of the step's arithmetic too. Only where the calling thread can address the device.
  scratch,
};

namespace detail {

/// Pins and leases point to scratch bytes while this object lives. Its destructor waits for kernels on them.
template <class Engine>
class scratch_until_end {
 public:
  scratch_until_end(Engine& engine, rehearse_on on)
  {
    if (on == rehearse_on::nothing || engine.rehearsing().is_running())
      return;  // inside another rehearsal it is refused
    expects(Engine::host_addressable,
            "a rehearsal on scratch bytes, of a device that the calling thread cannot address: its kernels "
            "could not work on them (rehearse on nothing, and skip kernels where rehearsing() is true)");
    std::uint64_t largest = 0;
    for (const slot& slot_state : engine.tensors().slots()) largest = std::max(largest, slot_state.size);
    engine.scratch().begin(largest);
    engine_ = &engine;
  }
  scratch_until_end(const scratch_until_end&) = delete;
  ~scratch_until_end()
  {
    if (engine_ == nullptr) return;
    engine_->arenas().wait_for_agents();
    engine_->scratch().end(engine_->rehearsing().held() > 0);
  }

 private:
  Engine* engine_ = nullptr;
};

template <class Engine, class Builder>
void run_without_bytes(Engine& engine, Builder& builder, call_ref<void()> step)
{
  auto& log = engine.rehearsing();
  expects(!engine.schedule().is_inside() && !log.is_running(), "a rehearsal inside an iteration or another rehearsal");
  engine.health().expect_alive();
  const auto end = [&]() noexcept {
    if (log.is_running()) log.end();
    engine.pending().discard();
    engine.gradients().end_rehearsal();
    builder.forget_ready();
  };
  engine.gradients().begin_rehearsal();
  try {
    log.begin(engine.tensors());
    step();
    while (log.wants_next(engine.pending().any())) {
      log.begin_next(engine.pending().any());
      step();
    }
    expects(
        !engine.scratch().is_on() || log.held() == 0,
        "a pin or lease of a rehearsal on scratch bytes outlived the step: its bytes belong to no tensor (end all of "
        "them in the step)");
  } catch (...) {
    end();
    throw;
  }
  end();
  builder.learn_order(log.last_record());
  engine.gradients().places().learn(log.last_record(), engine.tensors());
  engine.settle_gradients();
  log.finish(engine.tensors());
}

}  // namespace detail

/// Runs a trainer's step without bytes, and finds the least capacities at which it runs: basic_manager::rehearse.
///
/// Cost: the step's calls, once or a few times, and the replays of `rehearsal`.
/// @param builder    model_builder: places the model and gives states their tiers
/// @param eviction   policy of the simulation
/// @param known      see basic_manager::rehearse
/// @throws config_error, usage_error   see basic_manager::rehearse
template <class Engine, class Builder>
memory_requirement rehearse_step(Engine& engine, Builder& builder, const typename Engine::eviction_type& eviction,
                                 call_ref<void()> step, rehearse_on on, const memory_requirement* known,
                                 std::span<const bytes> others)
{
  builder.place();
  engine.pending().finish();
  auto tiers = builder.try_tiers();
  const detail::scratch_until_end<Engine> scratch{engine, on};
  detail::run_without_bytes(engine, builder, step);
  const auto& log = engine.rehearsing();
  builder.measured(most_leased_of(log, tier::device));
  memory_requirement need = builder.requirement();
  const per_tier<bytes> given = engine.arenas().capacities();
  const auto settle = [&](bytes device) {
    try {
      if (builder.assign_tiers(device)) detail::run_without_bytes(engine, builder, step);
      return true;
    } catch (const config_error&) {  // the placement refuses a device of this size
      return false;
    }
  };
  if (known != nullptr)
    need = *known;
  else
    measure_need<typename Engine::transfer_type>(engine.frames(), log, eviction, given, others, need, settle);
  refuse_too_small_for_step(given, need);
  builder.note_fit();
  engine.note_step_need({{need.smallest_device, need.smallest_host}});
  if (builder.assign_tiers()) detail::run_without_bytes(engine, builder, step);
  tiers.keep();
  return need;
}

}  // namespace chunkmem::inline v0
