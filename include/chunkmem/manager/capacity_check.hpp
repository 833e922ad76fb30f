// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/memory_requirement.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <chunkmem/profile/tide.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// What the declarations alone say. @pre sealed
/// @param visits   `visits(slot)`: it works on the device, so that its chunk must fit there
template <class Core, class Visits>
[[nodiscard]] memory_requirement requirement_of(const Core& core, Visits visits)
{
  memory_requirement need;
  need.chunk_bytes = core.options().chunk_bytes;
  for (std::size_t part = 0; part < role_count; ++part)
    need.by_role.values[part] = core.tensors().bytes_of(static_cast<role>(part));
  const auto& slots = core.tensors().slots();
  for (std::uint32_t at = 0; at < core.tensors().parameters(); ++at)
    if (core.places().is_lent(at)) need.by_role[role::gradient] -= bytes{slots[core.tensors().gradient_of(at)].size};
  std::vector<std::uint8_t> counted(core.tensors().frames_of_chunk().size(), 0);
  std::uint32_t largest = 0;
  for (std::uint32_t at = 0; at < slots.size(); ++at) {  // chunks of gradients that lie in their weights hold nothing
    const std::uint32_t chunk = slots[at].chunk;
    if (chunk == slot::nowhere) continue;
    const std::uint32_t frames = core.tensors().frames_of_chunk()[chunk];
    if (visits(at)) largest = std::max(largest, frames);
    if (std::exchange(counted[chunk], std::uint8_t{1}) == 0) need.chunks += frames * core.options().chunk_bytes;
  }
  need.everything = need.chunks;
  need.smallest_device = largest * core.options().chunk_bytes;
  return need;
}

/// The most that a rehearsed step leases at once.
template <class Log>
[[nodiscard]] bytes most_leased_of(const Log& rehearsed, tier where)
{
  return std::max(most_leased(rehearsed.record(), where), most_leased(rehearsed.record(true), where));
}

/// Adds what the rehearsed step says: the exact smallest capacities.
/// @param settle   `settle(device)`: makes the rehearsed record that of a device of this size; false where it cannot be
///   placed
template <class Eviction, class Transfer, class Core, class Settle>
void measure_need(const Core& core, const Eviction& eviction, memory_requirement& need, Settle settle)
{
  rehearsal<Core, Eviction, Transfer, Settle> trial{core, eviction, core.rehearsing().record(),
                                                    core.rehearsing().filled(), settle};
  if (core.rehearsing().has_second()) trial.add(core.rehearsing().record(true), core.rehearsing().filled(true));
  const std::uint64_t frame = core.options().chunk_bytes.count();
  need.largest_leases = most_leased_of(core.rehearsing(), tier::device);
  need.everything = need.chunks + align_up(need.largest_leases, bytes{frame});
  const std::uint64_t all = need.everything.count() / frame + 1;
  const bytes host_leases = align_up(most_leased_of(core.rehearsing(), tier::host), bytes{frame});
  const bytes roomy = 2 * need.chunks + 2 * host_leases + bytes{frame};
  const bytes device = core.capacities()[tier::device];
  const std::uint64_t largest = need.smallest_device.count() / frame;  // also where this step does not use it
  need.smallest_device = trial.smallest_device(frame, roomy, 2 * all, largest) * bytes{frame};
  // A window can be cut off by pins where one more frame would not be: the given capacity is tried as it is.
  if (device > need.smallest_device && !trial.fits({{device, roomy, bytes{}}}))
    need.smallest_device = trial.smallest_device(frame, roomy, 2 * all, device.count() / frame + 1) * bytes{frame};
  const bytes beside = std::clamp(device, need.smallest_device, std::max(need.smallest_device, 2 * need.everything));
  need.smallest_host = trial.smallest_host(frame, beside, roomy.count() / frame) * bytes{frame};
  const bytes host = core.capacities()[tier::host];  // windows are cut off there, too
  if (host > need.smallest_host && host < roomy && !trial.fits({{beside, host, bytes{}}})) {
    std::uint64_t frames = host.count() / frame + 1;
    while (frames < roomy.count() / frame && !trial.fits({{beside, bytes{frames * frame}, bytes{}}})) ++frames;
    need.smallest_host = bytes{frames * frame};
  }
  need.rehearsed = true;
}

namespace detail {

/// One error about several sizes: each line of it is a size that must grow.
class too_small {
 public:
  explicit too_small(std::string_view what) { text_ << "chunkmem: " << what << " does not fit"; }

  /// @param what   needs it, such as "the largest tensor of this model"
  void expect(std::string_view where, bytes capacity, bytes least, std::string_view what)
  {
    if (capacity >= least) return;
    text_ << (count_++ == 0 ? ": " : "; ") << "the " << where << " capacity is " << capacity.count() << " B, but "
          << what << " needs at least " << least.count() << " B";
  }
  /// @throws config_error   some size was too small
  void refuse(bytes chunk_bytes, std::string_view smaller)
  {
    if (count_ == 0) return;
    throw config_error{text_ << " with chunks of " << chunk_bytes.count() << " B (raise "
                             << (count_ == 1 ? "it" : "them") << ", or use smaller chunks" << smaller << ")"};
  }

 private:
  error_text text_;
  unsigned count_ = 0;
};

}  // namespace detail

/// What weights and the states of the optimizer take together: they are all there once every parameter had a step.
/// Chunks that are gathered from shares of ranks are not counted. In whole frames. O(slots). @pre sealed
template <class Core>
[[nodiscard]] bytes lasting_bytes(const Core& core)
{
  const registry& tensors = core.tensors();
  std::vector<std::uint8_t> counted(tensors.frames_of_chunk().size(), 0);
  std::uint64_t frames = 0;
  const auto count = [&](std::uint32_t chunk) {
    if (chunk != slot::nowhere && std::exchange(counted[chunk], std::uint8_t{1}) == 0)
      frames += tensors.frames_of_chunk()[chunk];
  };
  for (std::uint32_t at = 0; at < tensors.slots().size(); ++at)
    if (tensors.is_value_of_parameter(at) || tensors.is_state(at)) count(tensors.slots()[at].chunk);
  for (std::uint32_t id = 0; id < tensors.tensors(); ++id)
    if (tensors.info(tensor_id{id}).part == role::frozen)
      count(tensors.slots()[tensors.value_slot(tensor_id{id})].chunk);
  return frames * core.options().chunk_bytes;
}

/// @throws config_error   a tier is too small for the declarations alone; names each size that must grow
template <class Core>
void refuse_too_small_for_model(const Core& core, const memory_requirement& need)
{
  const auto whole_frames = [&](tier where) {
    return core.capacities()[where].count() / core.options().chunk_bytes.count() * core.options().chunk_bytes;
  };
  detail::too_small sizes{"this model"};
  sizes.expect("device", core.capacities()[tier::device], need.smallest_device, "the largest tensor of this model");
  const bytes lasting = lasting_bytes(core);
  const bytes device = std::max(whole_frames(tier::device), need.smallest_device);
  sizes.expect("host", whole_frames(tier::host), lasting > device ? lasting - device : bytes{},
               "the part of weights and optimizer states that the device does not hold");
  sizes.refuse(core.options().chunk_bytes, "; rehearse(step) says what a step needs");
}

/// @throws config_error   a tier is too small for the rehearsed step; names each size that must grow
template <class Core>
void refuse_too_small_for_step(const Core& core, const memory_requirement& need)
{
  detail::too_small sizes{"this step"};
  sizes.expect("device", core.capacities()[tier::device], need.smallest_device, "this step");
  sizes.expect("host", core.capacities()[tier::host], need.smallest_host, "this step");
  sizes.refuse(core.options().chunk_bytes, " or batches");
}

}  // namespace chunkmem::inline v0
