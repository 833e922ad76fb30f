// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/gradient_places.hpp>
#include <chunkmem/manager/memory_requirement.hpp>
#include <chunkmem/manager/model_frames.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/profile/tide.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

/// What the declarations alone say. @pre sealed
/// @param visits   `visits(slot)`: it works on the device, so that its chunk must fit there
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

/// The most that a rehearsed step leases at once.
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

/// Adds what the rehearsed step says: the exact smallest capacities.
/// @param given    capacities of the backend
/// @param settle   `settle(device)`: makes the rehearsed record that of a device of this size; false where it cannot be
///   placed
template <class Transfer, class Eviction, class Log, class Settle>
void measure_need(const model_frames& frames, const Log& rehearsed, const Eviction& eviction, per_tier<bytes> given,
                  memory_requirement& need, Settle settle)
{
  const auto turns = rehearsed.turns();
  rehearsal<Eviction, Transfer, Settle> trial{frames, eviction, settle};
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
  // A window can be cut off by pins where one more frame would not be: the given capacity is tried as it is.
  if (device > need.smallest_device && !trial.fits({{device, roomy}}))
    need.smallest_device = trial.smallest_device(roomy, 2 * all, device.count() / frame.count() + 1) * frame;
  const bytes beside = std::clamp(device, need.smallest_device, std::max(need.smallest_device, 2 * need.everything));
  need.smallest_host = trial.smallest_host(beside, roomy.count() / frame.count()) * frame;
  const bytes host = given[tier::host];  // windows are cut off there, too
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

  /// @param what   needs it, such as "the largest tensor of this model"
  /// @param chunks_help   it might fit with smaller chunks
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

/// What the weights take: they are all there once they were filled, if none is dropped. States of an optimizer are not
/// counted: those of a parameter without a gradient never come to be. Nor are chunks that are gathered from shares of
/// ranks. In whole frames. O(slots). @pre sealed
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

}  // namespace chunkmem::inline v0
