// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/splitmix64.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// A chunk that is loaded for the next iteration before this one ends.
///
///     for (const early_load& it : plan.early) std::cout << it.chunk << " from " << it.ready << " on\n";
struct early_load {
  std::uint32_t chunk = 0;
  std::uint32_t ready = 0;        ///< from this access on, this iteration does not use the chunk
  std::uint32_t first_use = 0;    ///< its access in the next iteration
  std::uint32_t lease_limit = 0;  ///< leases reach down to this frame before the chunk leaves again

  bool operator==(const early_load&) const = default;
};

/// The plan of a recorded iteration: the chunks that stay on the device, in which room, for which record. A transfer
/// policy returns one, a manager follows it, and a file keeps it for the next run.
///
///     plan_text::write(file, m.plan());            // one run
///     m.use_plan(plan_text::read(file));           // the next run, after use_profile()
///
/// All vectors are empty where the eviction policy decides.
struct iteration_plan {
  // The record and the sizes that the plan was made for. A policy leaves these numbers 0, and `m.plan()` sets them.
  std::uint64_t record = 0;  ///< fingerprint_of() the iteration
  std::uint64_t frame_bytes = 0;
  std::uint64_t device_bytes = 0;  ///< for chunks and leases
  std::uint64_t host_bytes = 0;
  /// in one iteration, both directions, as it was solved; 0 where the eviction policy decides, or this manager did not
  /// solve the plan
  std::uint64_t moved_bytes = 0;
  /// no plan of one iteration moves less; 0 as above. For readers: a manager uses neither number of a given plan
  std::uint64_t bound_bytes = 0;
  std::uint32_t variant = 0;  ///< setting of the eviction policy, for misses outside of the plan; the manager sets it
  /// by access index: the next use of the chunk if the chunk stays until then, else never
  std::vector<std::uint32_t> retained_until;
  /// by chunk: its first use if the chunk lies on the device when an iteration begins, else never
  std::vector<std::uint32_t> first_use;
  /// by access index: leases reach down to this frame before a chunk that is loaded now leaves
  std::vector<std::uint32_t> lease_limits;
  /// by chunk: 1 if the chunk never leaves and needs no host copy; empty: every chunk needs a host copy
  std::vector<std::uint8_t> device_only;
  /// by access index: the first frame of the chunk, or frame_id::none; empty: each load finds frames when it happens
  std::vector<std::uint32_t> places;
  /// ordered by `ready`; files and `m.plan()` leave it empty, since the other vectors determine it: see
  /// early_loading_transfer
  std::vector<early_load> early;

  bool operator==(const iteration_plan&) const = default;

  /// The eviction policy decides from now on. No memory is freed.
  void clear() noexcept
  {
    moved_bytes = bound_bytes = 0;
    retained_until.clear();
    first_use.clear();
    lease_limits.clear();
    device_only.clear();
    places.clear();
    early.clear();
  }
};

/// A hash of everything on which a plan depends: accesses, releases and the layout of chunks, but not passes and
/// micro-batches. Another iteration or layout has another hash, except by chance. Cost: O(entries + chunks).
[[nodiscard]] inline std::uint64_t fingerprint_of(const access_record& record,
                                                  std::span<const std::uint32_t> chunk_of_slot,
                                                  std::span<const std::uint32_t> frames_of_chunk) noexcept
{
  std::uint64_t hash = record.size();
  const auto add = [&](std::uint64_t value) { hash = mixed_bits((hash ^ value) + splitmix64::step); };
  for (std::uint32_t index = 0; index < record.size(); ++index) {
    const access_entry& entry = record.entries()[index];
    add(static_cast<std::uint64_t>(entry.kind) << 32 | entry.slot);
    add(entry.slot == access_record::never ? record.details()[index].bytes : chunk_of_slot[entry.slot]);
  }
  for (const release_entry& release : record.releases()) add(std::uint64_t{release.until} << 32 | release.access_index);
  for (const std::uint32_t frames : frames_of_chunk) add(frames);
  return hash;
}

/// Checks that every stay ends with a use of the same chunk on the device, so that no two chunks wait for one access.
/// @throws config_error   names the first access or chunk that breaks this   @complexity O(accesses + chunks)
inline void expect_plan_fits(const iteration_plan& plan, const access_record& record,
                             std::span<const std::uint32_t> chunk_of_slot, std::size_t chunks)
{
  const auto refuse = [](std::string_view what, std::uint64_t number, std::string_view why) {
    throw config_error{error_text{} << "chunkmem: a plan is not one of this iteration: " << what << " " << number << " "
                                    << why << " (save it again with this model)"};
  };
  if (plan.retained_until.empty() && plan.first_use.empty() && plan.lease_limits.empty() && plan.device_only.empty() &&
      plan.places.empty())
    return;
  if (plan.retained_until.size() != record.size() || plan.lease_limits.size() != record.size() ||
      (!plan.places.empty() && plan.places.size() != record.size()))
    refuse("it has", plan.retained_until.size(), "accesses, which are too many or too few");
  if (plan.first_use.size() != chunks || (!plan.device_only.empty() && plan.device_only.size() != chunks))
    refuse("it has", plan.first_use.size(), "chunks, which are too many or too few");
  const auto is_use_of = [&](std::uint32_t access_index, std::uint32_t chunk) {
    if (access_index == access_record::never) return true;
    if (access_index >= record.size()) return false;
    const access_entry& entry = record.entries()[access_index];
    return is_access(entry.kind) && place_of(entry.kind) == memory_location::device &&
           chunk_of_slot[entry.slot] == chunk;
  };
  for (std::uint32_t now = 0; now < record.size(); ++now) {
    const std::uint32_t slot = record.entries()[now].slot;
    if (!is_use_of(plan.retained_until[now], slot == access_record::never ? UINT32_MAX : chunk_of_slot[slot]))
      refuse("access", now, "says that its chunk stays until an access that does not use it");
  }
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk)
    if (!is_use_of(plan.first_use[chunk], chunk))
      refuse("chunk", chunk, "is said to stay until an access that does not use it");
}

}  // namespace transfer

}  // namespace chunkmem::inline v0
