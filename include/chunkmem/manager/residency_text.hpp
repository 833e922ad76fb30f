// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/printable.hpp>
#include <chunkmem/manager/residency_snapshot.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace detail {

/// Puts words and numbers behind each other.
class residency_writer {
 public:
  template <class... Parts>
  void add(const Parts&... parts)
  {
    (append(parts), ...);
  }

  void add_tier(std::string_view name, const tier_snapshot& it, std::size_t most)
  {
    add(name, ": capacity ", it.capacity.count(), " B, in use ", it.in_use.count(), " B (at most ", it.peak.count(),
        "), leased ", it.leased.count(), " B (at most ", it.most_leased.count(), "); ", it.free_frames, " of ",
        it.frames, " frames free, longest run free ", it.longest_free, ", that could be cleared ", it.longest_clearable,
        "\n");
    if (!it.runs.empty()) add("  frames: ");
    for (std::size_t at = 0; at < it.runs.size() && at < most; ++at) {
      const frame_run& run = it.runs[at];
      add(at == 0 ? "" : ", ", run.first);
      if (run.frames > 1) add("-", run.first + run.frames - 1);
      add(" ", name_of(run.use));
    }
    if (it.runs.size() > most) add(", and ", it.runs.size() - most, " more runs");
    if (!it.runs.empty()) add("\n");
    if (!it.leases.empty()) add("  leases: ");
    for (std::size_t at = 0; at < it.leases.size() && at < most; ++at)
      add(at == 0 ? "" : ", ", it.leases[at].size, " B at ", it.leases[at].begin);
    if (it.leases.size() > most) add(", and ", it.leases.size() - most, " more");
    if (!it.leases.empty()) add("\n");
  }

  void add_chunk(const residency_snapshot& from, std::uint32_t at, std::size_t most)
  {
    const chunk_snapshot& it = from.chunks[at];
    const chunk& place = it.place;
    const std::string_view kind = it.list == 0 ? name_of(it.part) : std::string_view{from.lists[it.list]};
    add("  chunk ", at, " (");
    add_name(it.tensors == 0 ? "no tensor" : kind);
    add("): ");
    add_window("device", place.device, place.frames);
    add(", ");
    if (place.is_derived())
      add("host share elsewhere");
    else
      add_window("host", place.host, place.frames);
    if (place.has_window() && !place.host_valid) add(" without valid bytes");
    if (place.device_pins > 0) add(", pins on the device ", place.device_pins);
    if (place.host_pins > 0)
      add(", pins on the host ", std::uint32_t{place.host_pins}, " (writing ", std::uint32_t{place.host_writers}, ")");
    if (place.next_use != chunk::nowhere) add(", next use at ", place.next_use);
    add("; ", it.used.count(), " B");
    add_tensors(from, it, most);
    add("\n");
  }

  [[nodiscard]] std::string take() noexcept { return std::move(text_); }

 private:
  void append(std::string_view words) { text_.append(words); }
  /// A name that somebody gave: what would end its line or speak to a terminal is written as a C++ escape, and so is a
  /// backslash.
  void add_name(std::string_view name)
  {
    while (!name.empty()) {
      const std::size_t special = std::min(name.find_first_of("\\\n"), name.size());
      text_.append(printable(name.substr(0, special)));
      if (special < name.size()) text_.append(name[special] == '\n' ? "\\n" : "\\\\");
      name.remove_prefix(std::min(special + 1, name.size()));
    }
  }
  void append(std::uint64_t number) { text_.append(std::to_string(number)); }

  void add_window(std::string_view where, std::uint32_t first, std::uint32_t frames)
  {
    if (first == chunk::nowhere) return add("not on ", where);
    add(where, frames > 1 ? " frames " : " frame ", first);
    if (frames > 1) add("-", first + frames - 1);
  }

  /// Pinned ones first: they are why it cannot leave.
  void add_tensors(const residency_snapshot& from, const chunk_snapshot& it, std::size_t most)
  {
    std::size_t told = 0;
    for (const bool pinned : {true, false})
      for (std::uint32_t at = it.first_tensor; at < it.first_tensor + it.tensors && told < most; ++at) {
        const tensor_snapshot& one = from.tensors[at];
        if ((one.pins > 0) != pinned) continue;
        add(told++ == 0 ? ": " : ", ");
        add_name(one.name);
        if (one.list != it.list) {
          add(" ");
          add_name(from.lists[one.list]);
        }
        add(" ", name_of(one.state));
        if (pinned) add(" (pins ", one.pins, ")");
      }
    if (it.tensors > told) add(", and ", it.tensors - told, " more");
  }

  std::string text_;
};

/// What stands in the way comes first: pinned, then sole copies, then what lies anywhere, then the rest.
[[nodiscard]] inline std::size_t importance(const chunk& it) noexcept
{
  if (it.device_pins > 0 || it.host_pins > 0) return 0;
  if (it.live > 0 && it.on_device() != it.host_valid) return 1;
  return it.on_device() || it.has_window() ? 2 : 3;
}

}  // namespace detail

/// Both tiers with what is free, held and lent, then the chunks, those that cannot leave first: what to print beside an
/// error. Each line is one of this text's, whatever names hold: a control character or a backslash in a name is written
/// as an escape.
/// @param most   runs of frames and leases of a tier, chunks, and tensors of a chunk that are told singly; the rest is
///   counted
[[nodiscard]] inline std::string to_string(const residency_snapshot& from, std::size_t most = 24)
{
  detail::residency_writer text;
  text.add(from.is_inside ? "residency at moment " : "residency outside of iterations",
           from.is_inside ? std::to_string(from.moment) : "", from.is_inside ? " of an iteration, after " : ", after ",
           from.iterations, " whole ones; frames of ", from.frame.count(), " B\n");
  for (const tier where : {tier::device, tier::host}) text.add_tier(name_of(where), from.tiers[where], most);
  std::array<std::vector<std::uint32_t>, 4> sorted;
  for (std::uint32_t at = 0; at < from.chunks.size(); ++at)
    sorted[detail::importance(from.chunks[at].place)].push_back(at);
  text.add("chunks: ", from.chunks.size(), ", of them ", sorted[0].size(), " pinned, ", sorted[1].size(),
           " with a single copy, ", sorted[2].size(), " others that lie somewhere\n");
  std::size_t told = 0;
  for (const auto& group : sorted)
    for (std::size_t at = 0; at < group.size() && told < most; ++at, ++told) text.add_chunk(from, group[at], most);
  if (from.chunks.size() > told) text.add("  and ", from.chunks.size() - told, " more\n");
  return text.take();
}

}  // namespace chunkmem::inline v0
