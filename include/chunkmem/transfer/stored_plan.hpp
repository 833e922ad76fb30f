// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// The solution of a recorded iteration as data that outlives its manager: the chunks that stay, in which room, for
/// which record.
///
///     plan_text::write(file, m.plan());            // one run
///     m.use_plan(plan_text::read(file));           // the next run, after use_profile()
struct stored_plan {
  std::uint64_t record = 0;  ///< fingerprint_of() the iteration
  std::uint64_t frame_bytes = 0;
  std::uint64_t device_bytes = 0;  ///< for chunks and leases
  std::uint64_t host_bytes = 0;
  /// in one iteration, both directions; 0 where the eviction policy decides, or this manager did not solve the plan
  std::uint64_t moved_bytes = 0;
  /// no plan of one iteration moves less; 0 as above. For people: a manager uses neither number of a given plan
  std::uint64_t bound_bytes = 0;
  std::uint32_t variant = 0;                  ///< setting of the eviction policy, for misses outside of the plan
  std::vector<std::uint32_t> retained_until;  ///< as in retention; all five are empty where the eviction policy decides
  std::vector<std::uint32_t> first_use;
  std::vector<std::uint32_t> borders;
  std::vector<std::uint8_t> device_only;  ///< as long as `first_use`, or empty
  std::vector<std::uint32_t> places;      ///< as in retention; as long as `borders`, or empty

  bool operator==(const stored_plan&) const = default;
};

/// A hash of everything on which a plan depends: accesses, releases and the layout of chunks, but not passes and
/// micro-batches. Another iteration or layout has another hash, except by chance. Cost: O(entries + chunks).
[[nodiscard]] inline std::uint64_t fingerprint_of(const access_record& record,
                                                  std::span<const std::uint32_t> chunk_of_slot,
                                                  std::span<const std::uint32_t> frames_of_chunk) noexcept
{
  std::uint64_t hash = record.size();
  const auto add = [&](std::uint64_t value) {  // splitmix64 (Steele, Lea and Flood 2014)
    hash = (hash ^ value) + 0x9e3779b97f4a7c15U;
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9U;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111ebU;
    hash ^= hash >> 31;
  };
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
inline void expect_plan_fits(const stored_plan& plan, const access_record& record,
                             std::span<const std::uint32_t> chunk_of_slot, std::size_t chunks)
{
  const auto refuse = [](std::string_view what, std::uint64_t number, std::string_view why) {
    throw config_error{error_text{} << "chunkmem: a plan is not one of this iteration: " << what << " " << number << " "
                                    << why << " (save it again with this model)"};
  };
  if (plan.retained_until.empty() && plan.first_use.empty() && plan.borders.empty() && plan.device_only.empty() &&
      plan.places.empty())
    return;
  if (plan.retained_until.size() != record.size() || plan.borders.size() != record.size() ||
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
