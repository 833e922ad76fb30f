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
/// @param settle   `settle(device)`: makes the rehearsed record that of a device of this size; false where it cannot be placed
template <class Eviction, class Transfer, class Core, class Settle>
void measure_need(const Core& core, const Eviction& eviction, memory_requirement& need, Settle settle)
{
  rehearsal<Core, Eviction, Transfer, Settle> trial{core, eviction, core.rehearsing().record(), core.rehearsing().filled(), settle};
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

/// @throws config_error   the tier's capacity is below `least`
template <class Core>
void refuse_below(const Core& core, tier where, bytes least, std::string_view what)
{
  const bytes capacity = core.capacities()[where];
  if (capacity >= least) return;
  throw config_error{error_text{} << "chunkmem: the " << name_of(where) << " capacity is " << capacity.count() << " B, but "
                                  << what << " needs at least " << least.count() << " B with chunks of "
                                  << core.options().chunk_bytes.count()
                                  << " B (raise the capacity, or use smaller chunks or batches)"};
}

}  // namespace chunkmem::inline v0
