// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// The kind of an entry of a record: one byte, compared on the hot path.
enum class entry_kind : std::uint8_t {
  read,
  read_write,
  write,  ///< a pin on the device; the values of `access_mode`
  read_on_host = 4,
  read_write_on_host,
  write_on_host,
  lease_device = 8,
  lease_host,  ///< scratch bytes
  drop = 16,   ///< the bytes of a slot are dead
};

[[nodiscard]] constexpr entry_kind kind_of(access_mode mode, memory_location place) noexcept
{
  return static_cast<entry_kind>(static_cast<unsigned>(mode) | (place == memory_location::host ? 4U : 0U));
}
[[nodiscard]] constexpr bool is_access(entry_kind kind) noexcept
{
  return static_cast<unsigned>(kind) < 8;
}
[[nodiscard]] constexpr bool is_lease(entry_kind kind) noexcept
{
  return kind == entry_kind::lease_device || kind == entry_kind::lease_host;
}
[[nodiscard]] constexpr memory_location place_of(entry_kind kind) noexcept
{
  return (static_cast<unsigned>(kind) & 4U) != 0 ? memory_location::host : memory_location::device;
}
[[nodiscard]] constexpr access_mode access_of(entry_kind kind) noexcept
{
  return static_cast<access_mode>(static_cast<unsigned>(kind) & 3U);
}

/// The tier of an access or a lease.
[[nodiscard]] constexpr tier tier_of(entry_kind kind) noexcept
{
  return kind == entry_kind::lease_host || place_of(kind) == memory_location::host ? tier::host : tier::device;
}

/// The kind of a first use of bytes that start at zero. The use fills the bytes, so a read becomes an update.
[[nodiscard]] constexpr entry_kind first_use(entry_kind kind) noexcept
{
  return access_of(kind) == access::read ? kind_of(access::read_write, place_of(kind)) : kind;
}

/// One access, lease or drop of a recorded iteration: the half that replay reads. 16 bytes.
///
///     std::size_t reads = 0;
///     for (const access_entry& it : record.entries()) reads += it.kind == entry_kind::read ? 1 : 0;
struct access_entry {
  std::uint32_t slot = 0;          ///< slot, or UINT32_MAX for a lease
  std::uint32_t next_of_slot = 0;  ///< access of the next entry of this slot, around the end
  /// access of the next use for which the device's copy of its chunk saves a load, around the end; or never
  std::uint32_t next_of_chunk = 0;
  entry_kind kind = entry_kind::read;
  bool has_actions = false;  ///< the plan has actions for this access
  std::uint16_t micro_batch = 0;

  /// The entry is this kind of access, without planned actions. A replay tests nothing else.
  [[nodiscard]] bool is_plain(entry_kind wanted) const noexcept
  {
    return (static_cast<unsigned>(kind) | static_cast<unsigned>(has_actions) << 8) == static_cast<unsigned>(wanted);
  }
};

static_assert(sizeof(access_entry) == 16);

/// The half that only planning reads.
///
///     for (const entry_detail& it : record.details()) std::cout << it.until << '\n';
struct entry_detail {
  static constexpr std::uint32_t never = UINT32_MAX;
  std::uint64_t bytes = 0;      ///< of a lease
  std::uint32_t until = never;  ///< accesses passed when it was released
  pass during = pass::none;
};

/// A pin or lease that ended before the access `until`. Releases stand in the order in which they ended.
///
///     for (const release_entry& it : record.releases()) std::cout << it.access_index << " to " << it.until << '\n';
struct release_entry {
  std::uint32_t until = 0;
  std::uint32_t access_index = 0;  ///< of the acquire that it ends
};

/// The state of late updates when an iteration began: with waiting updates, an iteration does more.
enum class record_start : std::uint8_t {
  without_updates,
  with_updates,
  unknown,  ///< of profiles that an older version wrote
};

/// The accesses of one iteration, keyed by slot: tensor and list, never chunk. So a record outlives a change of layout.
///
/// Holds accesses with their place and end, leases and drops: each of them limits the moves of chunks. Memory: 40 bytes
/// for each access. Source: warm-up tracing of PatrickStar (Fang et al. 2021, arXiv 2108.05818).
///
/// Use:
///
///     record.make_room();                                            // then the next two calls cannot throw
///     const std::uint32_t access = record.append(entry, detail);
///     record.release(access);                                        // when the pin or lease ends
///     record.finish(chunk_of_slot, chunks);                          // when the iteration is over
class access_record {
 public:
  static constexpr std::uint32_t never = UINT32_MAX;

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(entries_.size()); }
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  [[nodiscard]] std::span<const access_entry> entries() const noexcept { return entries_; }
  [[nodiscard]] std::span<access_entry> entries() noexcept { return entries_; }
  [[nodiscard]] std::span<const entry_detail> details() const noexcept { return details_; }
  [[nodiscard]] std::span<const release_entry> releases() const noexcept { return releases_; }
  /// Access of the first entry of each slot, and of the first use for which the device's copy of each chunk saves a
  /// load; or never.
  [[nodiscard]] std::span<const std::uint32_t> first_of_slot() const noexcept { return first_of_slot_; }
  [[nodiscard]] std::span<const std::uint32_t> first_of_chunk() const noexcept { return first_of_chunk_; }

  /// Only accesses on the host make the device's copy of this chunk useless, and they need its bytes. No access on the
  /// device overwrites them. An early write-back then costs nothing: it has to come in any case.
  [[nodiscard]] bool is_left_for_host(std::uint32_t chunk) const noexcept { return use_of_chunk_[chunk] == on_host; }

  [[nodiscard]] record_start start() const noexcept { return start_; }
  void began(record_start how) noexcept { start_ = how; }

  [[nodiscard]] bool is_drop(std::uint32_t access_index) const noexcept
  {
    return entries_[access_index].kind == entry_kind::drop;
  }

  void clear() noexcept
  {
    entries_.clear();
    details_.clear();
    releases_.clear();
  }

  void reserve(std::size_t entries)
  {
    entries_.reserve(entries);
    details_.reserve(entries);
    releases_.reserve(entries);
  }

  /// Makes room for one more entry and one more release, so that the calls below cannot throw.
  void make_room()
  {
    if (entries_.size() == entries_.capacity()) entries_.reserve(2 * entries_.size() + 64);
    if (details_.size() == details_.capacity()) details_.reserve(2 * details_.size() + 64);
    if (releases_.capacity() < entries_.size() + 1) releases_.reserve(2 * entries_.size() + 64);
  }

  /// @pre make_room() since the last append   @return   its access
  std::uint32_t append(const access_entry& entry, const entry_detail& detail) noexcept
  {
    entries_.push_back(entry);
    details_.push_back(detail);
    return size() - 1;
  }

  /// The entry at `access_index` was released now. Ignores entries that are not in this record.
  void release(std::uint32_t access_index) noexcept
  {
    if (access_index >= size() || details_[access_index].until != entry_detail::never) return;
    details_[access_index].until = size();
    releases_.push_back({size(), access_index});
  }

  [[nodiscard]] bool is_released(std::uint32_t access_index) const noexcept
  {
    return access_index < size() && details_[access_index].until != entry_detail::never;
  }
  /// Moves a release from the entry at `wrong`, which is open again, to the entry at `right`, by the access `until`.
  /// `right` may be never: then no entry was released.
  /// @pre is_released(wrong), and `right` is open and before `until`   @complexity O(releases), allocates nothing
  void correct_release(std::uint32_t wrong, std::uint32_t right, std::uint32_t until) noexcept
  {
    releases_.erase(std::find_if(releases_.begin(), releases_.end(),
                                 [&](const release_entry& release) { return release.access_index == wrong; }));
    details_[wrong].until = entry_detail::never;
    if (right == never) return;
    details_[right].until = until;
    const auto later = std::find_if(releases_.begin(), releases_.end(),
                                    [&](const release_entry& release) { return release.until > until; });
    releases_.insert(later, {until, right});  // into the room of the other
  }

  /// Removes the entries after the first `entries`. A pin that was released after them counts as released there.
  void take_back(std::uint32_t entries) noexcept
  {
    while (size() > entries) entries_.pop_back(), details_.pop_back();
    erase_if(releases_, [&](const release_entry& it) { return it.access_index >= entries; });
    for (release_entry& it : releases_) details_[it.access_index].until = it.until = std::min(it.until, entries);
  }
  /// Becomes the first `entries` of `other`. Entries that were not yet released at that access are open again.
  void copy_prefix(const access_record& other, std::uint32_t entries)
  {
    clear();
    reserve(2 * static_cast<std::size_t>(other.size()));
    for (std::uint32_t index = 0; index < entries; ++index) {
      entry_detail detail = other.details_[index];
      if (detail.until > entries) detail.until = entry_detail::never;
      append(other.entries_[index], detail);
    }
    for (const release_entry& end : other.releases_)
      if (end.until <= entries) releases_.push_back(end);
  }

  /// Links each entry to the next of its slot, and to the next use of its chunk that would have to load without the
  /// device's copy. Where a use overwrites all live bytes, or the host writes, the copy saves nothing. Call this once,
  /// when the iteration is over. O(entries + slots + chunks).
  ///
  /// The record alone says which slots hold bytes, as if it repeats: slots that are not in it count as empty.
  void finish(std::span<const std::uint32_t> chunk_of_slot, std::uint32_t chunks)
  {
    live_slot_.assign(chunk_of_slot.size(), 0);
    live_of_chunk_.assign(chunks, 0);
    for (int round = 0; round < 2; ++round)  // the second begins with what the first one leaves
      for (access_entry& entry : entries_) mark_load(entry, chunk_of_slot);
    first_of_slot_.assign(chunk_of_slot.size(), never);
    first_of_chunk_.assign(chunks, never);
    use_of_chunk_.assign(chunks, 0);
    for (const access_entry& entry : entries_) mark_use(entry, chunk_of_slot);
    for (const bool around : {false, true})  // in the second round the last entries see the first ones
      for (std::uint32_t index = size(); index-- > 0;) link(index, chunk_of_slot, around);
  }

 private:
  /// Leaves in `next_of_chunk` whether this access needs bytes of its chunk, as residency decides it.
  void mark_load(access_entry& entry, std::span<const std::uint32_t> chunk_of_slot) noexcept
  {
    if (entry.slot == never) return;
    std::uint8_t& live = live_slot_[entry.slot];
    std::uint32_t& all = live_of_chunk_[chunk_of_slot[entry.slot]];
    const std::uint32_t others = all - live;
    entry.next_of_chunk = others > 0 || (live != 0 && access_of(entry.kind) != access::write) ? 1 : 0;
    live = entry.kind == entry_kind::drop ? 0 : 1;
    all = others + live;
  }

  /// @pre `next_of_chunk` is the mark
  void mark_use(const access_entry& entry, std::span<const std::uint32_t> chunk_of_slot) noexcept
  {
    if (entry.slot == never || !is_access(entry.kind)) return;
    std::uint8_t& use = use_of_chunk_[chunk_of_slot[entry.slot]];
    if (place_of(entry.kind) == memory_location::device)
      use |= entry.next_of_chunk == 0 ? overwritten : 0U;
    else if (writes(access_of(entry.kind)))
      use |= entry.next_of_chunk == 0 ? overwritten : on_host;
  }

  void link(std::uint32_t now, std::span<const std::uint32_t> chunk_of_slot, bool around) noexcept
  {
    access_entry& entry = entries_[now];
    entry.has_actions = false;
    if (entry.slot == never) return;
    std::uint32_t& slot = first_of_slot_[entry.slot];
    std::uint32_t& chunk = first_of_chunk_[chunk_of_slot[entry.slot]];
    const bool loads = entry.next_of_chunk != 0;  // the mark, until the second time
    if (around) {
      entry.next_of_slot = slot;
      entry.next_of_chunk = chunk;
    }
    slot = now;
    if (!is_access(entry.kind)) return;
    if (place_of(entry.kind) == memory_location::device)
      chunk = loads ? now : never;
    else if (writes(access_of(entry.kind)))
      chunk = never;  // the device's copy is void from here on
  }

  record_start start_ = record_start::unknown;
  sequence<access_entry> entries_;
  sequence<entry_detail> details_;
  sequence<release_entry> releases_;
  sequence<std::uint32_t> first_of_slot_;
  sequence<std::uint32_t> first_of_chunk_;
  static constexpr std::uint8_t on_host = 1;
  static constexpr std::uint8_t overwritten = 2;
  sequence<std::uint8_t> use_of_chunk_;
  sequence<std::uint8_t> live_slot_;  // kept between calls, so that linking again allocates nothing
  sequence<std::uint32_t> live_of_chunk_;
};

/// Calls `see(access, true)` for each entry and `see(access, false)` for each release, in the order in which they
/// happened.
template <class See>
void visit_in_order(const access_record& record, See see)
{
  const auto releases = record.releases();
  std::size_t ended = 0;
  for (std::uint32_t index = 0; index <= record.size(); ++index) {
    for (; ended < releases.size() && releases[ended].until <= index; ++ended) see(releases[ended].access_index, false);
    if (index < record.size()) see(index, true);
  }
}

/// The peak of leases of a recorded iteration: the most bytes that were leased at once in a tier. O(entries).
[[nodiscard]] inline bytes most_leased(const access_record& record, tier where)
{
  const entry_kind kind = where == tier::device ? entry_kind::lease_device : entry_kind::lease_host;
  std::uint64_t now = 0;
  std::uint64_t most = 0;
  visit_in_order(record, [&](std::uint32_t index, bool begins) {
    if (record.entries()[index].kind != kind) return;
    now = begins ? now + record.details()[index].bytes : now - record.details()[index].bytes;
    most = std::max(most, now);
  });
  return bytes{most};
}

}  // namespace chunkmem::inline v0
