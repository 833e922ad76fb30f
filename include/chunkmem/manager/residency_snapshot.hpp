// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/chunk_table.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/tensor/tensor.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>
#include <chunkmem/trace/trace_sink.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// Why a frame can or cannot be given to another chunk now.
enum class frame_use : std::uint8_t {
  free,    ///< empty
  spare,   ///< one of two valid copies, or a host frame without valid bytes: can leave without a copy
  sole,    ///< the only copy of bytes: on the device it must be written back to leave, on the host it cannot leave
  pinned,  ///< a pin holds it
  leased,  ///< a lease touches it
};

[[nodiscard]] constexpr std::string_view name_of(frame_use use) noexcept
{
  constexpr std::string_view names[] = {"free", "spare", "sole copy", "pinned", "leased"};
  return names[static_cast<std::size_t>(use)];
}

/// Contiguous frames of one use.
///
///     for (const frame_run& it : device.runs)
///       if (it.use == frame_use::free) std::cout << it.frames << " free frames from " << it.first << '\n';
struct frame_run {
  std::uint32_t first = 0;
  std::uint32_t frames = 0;
  frame_use use = frame_use::free;
};

/// A lease: its bytes and its place in the arena of the tier.
///
///     for (const lease_place& it : device.leases) std::cout << it.size << " B at " << it.begin << '\n';
struct lease_place {
  std::uint64_t begin = 0;  ///< [bytes]
  std::uint64_t size = 0;   ///< [bytes]
};

/// One tier: its capacity, its frames and its leases.
///
///     const tier_snapshot& device = now.tiers[tier::device];
///     std::cout << device.free_frames << " of " << device.frames << " frames are free\n";
struct tier_snapshot {
  bytes capacity;
  bytes in_use;  ///< frames of chunks, and leases
  bytes peak;    ///< the most that was ever in use
  bytes leased;
  bytes most_leased;  ///< the peak of leases so far
  std::uint32_t frames = 0;
  std::uint32_t free_frames = 0;
  std::uint32_t longest_free = 0;  ///< contiguous free frames
  /// contiguous frames that are free or can be cleared; on the device this may need room on the host
  std::uint32_t longest_clearable = 0;
  std::vector<frame_run> runs;      ///< all frames, from the bottom
  std::vector<lease_place> leases;  ///< from the bottom
};

/// One chunk: its place, its state and its tensors.
///
///     std::size_t on_device = 0;
///     for (const chunk_snapshot& it : now.chunks) on_device += it.place.has_frames(tier::device) ? 1 : 0;
struct chunk_snapshot {
  chunk place;  ///< its frames in both tiers, pins, and which copies are valid
  tensor_state state = tensor_state::free;
  std::uint32_t list = 0;       ///< index in residency_snapshot::lists
  role part = role::parameter;  ///< of its tensors
  bytes used;
  std::uint32_t first_tensor = 0;  ///< index in residency_snapshot::tensors
  std::uint32_t tensors = 0;
};

/// One tensor in one list, such as the momentum of a weight.
///
///     for (const tensor_snapshot& it : now.tensors)
///       if (it.pins > 0) std::cout << it.name << " is pinned\n";
struct tensor_snapshot {
  std::string name;
  std::uint32_t list = 0;  ///< index in residency_snapshot::lists
  role part = role::parameter;
  std::uint32_t chunk = 0;
  std::uint64_t offset = 0;  ///< in its chunk [bytes]
  bytes size;
  std::uint32_t pins = 0;  ///< in both tiers
  tensor_state state = tensor_state::free;
};

/// The places of all chunks and tensors at one moment: plain data that outlives the manager. `to_string` makes a short
/// text of it.
/// @code
/// const residency_snapshot now = manager.residency();
/// std::cerr << to_string(now, 8);            // at most 8 lines of each kind
/// if (now.tiers[tier::device].longest_clearable < frames) ...
/// @endcode
///
/// Before the first access, tensors and chunks exist and have no place.
struct residency_snapshot {
  per_tier<tier_snapshot> tiers;
  bytes frame;                     ///< size of a frame, the unit that moves
  std::uint64_t iterations = 0;    ///< that have ended
  bool is_inside = false;          ///< of an iteration
  std::uint32_t access_index = 0;  ///< accesses, leases and drops so far
  std::vector<std::string> lists;
  std::vector<chunk_snapshot> chunks;
  std::vector<tensor_snapshot> tensors;  ///< chunk by chunk, each from its beginning
};

namespace detail {

[[nodiscard]] inline frame_use use_of(const chunk_table& from, tier where, frame_id frame) noexcept
{
  const chunk_id occupant = from.space(where).occupant(frame);
  if (occupant == tier_space::free_frame) return frame_use::free;
  if (occupant == tier_space::leased_frame) return frame_use::leased;
  const chunk& chunk_state = from[occupant];
  if (chunk_state.pins[where] > 0) return frame_use::pinned;
  const bool has_others = std::any_of(all_tiers.begin(), all_tiers.end(),
                                      [&](tier other) { return other != where && chunk_state.is_valid(other); });
  return chunk_state.live > 0 && chunk_state.is_valid(where) && !has_others ? frame_use::sole : frame_use::spare;
}

[[nodiscard]] inline tier_snapshot snapshot_of(const chunk_table& from, tier where)
{
  const tier_space& room = from.space(where);
  tier_snapshot result;
  result.capacity = bytes{room.capacity()};
  result.in_use = bytes{room.in_use()};
  result.peak = bytes{room.peak()};
  result.leased = bytes{room.leased()};
  result.most_leased = bytes{room.most_leased()};
  result.frames = room.frames();
  result.free_frames = room.pool().free_count();
  std::uint32_t free = 0;
  std::uint32_t clearable = 0;
  for (const frame_id frame : ids<frame_id>(room.frames())) {
    const frame_use use = use_of(from, where, frame);
    const chunk_id occupant = room.occupant(frame);
    free = use == frame_use::free ? free + 1 : 0;
    clearable =
        use == frame_use::free || (use != frame_use::leased && from.may_leave(where, occupant)) ? clearable + 1 : 0;
    result.longest_free = std::max(result.longest_free, free);
    result.longest_clearable = std::max(result.longest_clearable, clearable);
    if (result.runs.empty() || result.runs.back().use != use) result.runs.push_back({index_of(frame), 0, use});
    ++result.runs.back().frames;
  }
  room.for_leases([&](std::uint64_t begin, std::uint64_t size) { result.leases.push_back({begin, size}); });
  return result;
}

/// All tensors in all lists that they are in, chunk by chunk.
[[nodiscard]] inline std::vector<tensor_snapshot> tensors_of(const registry& tensors,
                                                             std::span<const std::string> names)
{
  struct placed {
    chunk_id chunk;
    std::uint32_t list, tensor;
    std::uint64_t offset;
  };
  const auto slot_of = [&](std::uint32_t tensor, std::uint32_t list) -> const slot& {
    const tensor_id id{tensor};
    return tensors[list == 0 ? tensors.value_slot(id) : tensors.slot_in(id, list_id{list})];
  };
  sequence<placed> order;
  for (std::uint32_t list = 0; list < tensors.lists(); ++list)
    for (std::uint32_t id = 0; id < tensors.tensors(); ++id) {
      if (list > 0 && tensors.info(tensor_id{id}).part != role::parameter) continue;
      const slot& place = slot_of(id, list);
      if (place.chunk != chunk_id::none) order.push_back({place.chunk, list, id, place.offset});
    }
  sort_records(std::span{order}, [](const placed& left, const placed& right) {
    if (left.chunk != right.chunk) return left.chunk < right.chunk;
    if (left.offset != right.offset) return left.offset < right.offset;
    return left.list != right.list ? left.list < right.list : left.tensor < right.tensor;
  });
  std::vector<tensor_snapshot> result(order.size());
  for (std::size_t index = 0; index < order.size(); ++index) {
    const auto [chunk, list, id, offset] = order[index];
    const bool is_named = id < names.size() && !names[id].empty();
    const slot& place = slot_of(id, list);
    result[index] = {is_named ? names[id] : "tensor." + std::to_string(id),
                     list,
                     tensors.info(tensor_id{id}).part,
                     index_of(chunk),
                     offset,
                     bytes{place.size},
                     place.pins,
                     place.state};
  }
  return result;
}

}  // namespace detail

/// The residency of a manager. @param names   by tensor, as far as they were given; others are "tensor.<number>"
/// @return   lists alone where nothing is placed yet   @complexity O(frames + chunks + tensors log tensors), allocates
[[nodiscard]] inline residency_snapshot take_snapshot(const chunk_table& from, const registry& tensors,
                                                      std::span<const std::string> names)
{
  residency_snapshot result;
  for (const tier where : all_tiers) result.tiers[where] = detail::snapshot_of(from, where);
  for (std::uint32_t list = 0; list < tensors.lists(); ++list)
    result.lists.emplace_back(tensors.spec_of(list_id{list}).name);
  if (!tensors.is_sealed()) return result;
  result.tensors = detail::tensors_of(tensors, names);
  result.chunks.resize(tensors.frames_of_chunk().size());
  for (std::uint32_t index = 0; index < result.chunks.size(); ++index) {
    result.chunks[index].place.frames = tensors.frames_of_chunk()[index];
    if (index < from.chunks()) result.chunks[index].place = from[chunk_id{index}];
    result.chunks[index].used = bytes{tensors.used()[index]};
  }
  sequence<tensor_state> states;
  for (std::uint32_t index = 0; index < result.tensors.size(); ++index) {
    const tensor_snapshot& one = result.tensors[index];
    chunk_snapshot& parent = result.chunks[one.chunk];
    if (parent.tensors++ == 0) {
      parent.first_tensor = index;
      parent.list = one.list;
      parent.part = one.part;
    }
    states.push_back(one.state);
  }
  for (chunk_snapshot& parent : result.chunks)
    parent.state = state_of_chunk(std::span<const tensor_state>{states}.subspan(parent.first_tensor, parent.tensors));
  return result;
}

/// As take_snapshot, for an engine, with the progress of its iteration.
template <class Engine>
[[nodiscard]] residency_snapshot take_snapshot_of(const Engine& engine, std::span<const std::string> names)
{
  residency_snapshot result = take_snapshot(engine.chunks().table(), engine.tensors(), names);
  result.frame = engine.options().chunk_bytes;
  result.iterations = engine.snapshot().iterations;
  result.is_inside = engine.schedule().is_inside();
  result.access_index = engine.schedule().progress();
  return result;
}

namespace detail {

/// Appends words and numbers to a text.
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
    for (std::size_t index = 0; index < it.runs.size() && index < most; ++index) {
      const frame_run& run = it.runs[index];
      add(index == 0 ? "" : ", ", run.first);
      if (run.frames > 1) add("-", run.first + run.frames - 1);
      add(" ", name_of(run.use));
    }
    if (it.runs.size() > most) add(", and ", it.runs.size() - most, " more runs");
    if (!it.runs.empty()) add("\n");
    if (!it.leases.empty()) add("  leases: ");
    for (std::size_t index = 0; index < it.leases.size() && index < most; ++index)
      add(index == 0 ? "" : ", ", it.leases[index].size, " B at ", it.leases[index].begin);
    if (it.leases.size() > most) add(", and ", it.leases.size() - most, " more");
    if (!it.leases.empty()) add("\n");
  }

  void add_chunk(const residency_snapshot& from, std::uint32_t index, std::size_t most)
  {
    const chunk_snapshot& it = from.chunks[index];
    const chunk& place = it.place;
    const std::string_view kind = it.list == 0 ? name_of(it.part) : std::string_view{from.lists[it.list]};
    add("  chunk ", index, " (");
    add_name(it.tensors == 0 ? "no tensor" : kind);
    add("): ");
    for (const tier where : all_tiers) {
      if (where != all_tiers.front()) add(", ");
      add_frames(where, place);
    }
    for (const tier where : all_tiers) {
      if (place.pins[where] == 0) continue;
      add(", pins on the ", name_of(where), " ", place.pins[where]);
      if (where != tier::device) add(" (writing ", std::uint32_t{place.writers}, ")");
    }
    if (place.next_use != UINT32_MAX) add(", next use at ", place.next_use);
    add("; ", it.used.count(), " B");
    add_tensors(from, it, most);
    add("\n");
  }

  [[nodiscard]] std::string take() noexcept { return std::move(text_); }

 private:
  void append(std::string_view words) { text_.append(words); }
  /// A name given by a user: a control character or a backslash is written as a C++ escape.
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

  void add_frames(tier where, const chunk& place)
  {
    const frame_id first = place.first_frame[where];
    if (first == chunk::nowhere) return add("not on ", name_of(where));
    if (first == chunk::elsewhere) return add(name_of(where), " share elsewhere");
    add(name_of(where), place.frames > 1 ? " frames " : " frame ", index_of(first));
    if (place.frames > 1) add("-", index_of(first) + place.frames - 1);
    if (!place.is_valid(where)) add(" without valid bytes");
  }

  /// Pinned tensors first: they keep the chunk in place.
  void add_tensors(const residency_snapshot& from, const chunk_snapshot& it, std::size_t most)
  {
    std::size_t told = 0;
    for (const bool pinned : {true, false})
      for (std::uint32_t index = it.first_tensor; index < it.first_tensor + it.tensors && told < most; ++index) {
        const tensor_snapshot& one = from.tensors[index];
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

/// Chunks that block others come first: pinned, then sole copies, then other chunks with frames, then the rest.
[[nodiscard]] inline std::size_t importance(const chunk& chunk_state) noexcept
{
  if (std::any_of(all_tiers.begin(), all_tiers.end(), [&](tier where) { return chunk_state.pins[where] > 0; }))
    return 0;
  if (chunk_state.live > 0 && chunk_state.copies() == 1) return 1;
  return std::any_of(all_tiers.begin(), all_tiers.end(), [&](tier where) { return chunk_state.has_frames(where); }) ? 2
                                                                                                                    : 3;
}

}  // namespace detail

/// A text to print with an error: both tiers with their free, held and leased bytes, then the chunks, those that cannot
/// leave first. A control character or a backslash in a name is written as an escape, so that no name ends a line.
/// @param most   frame runs and leases of a tier, chunks, and tensors of a chunk that are listed; the rest is counted
[[nodiscard]] inline std::string to_string(const residency_snapshot& from, std::size_t most = 24)
{
  detail::residency_writer text;
  text.add(from.is_inside ? "residency at access " : "residency outside of iterations",
           from.is_inside ? std::to_string(from.access_index) : "",
           from.is_inside ? " of an iteration, after " : ", after ", from.iterations, " whole ones; frames of ",
           from.frame.count(), " B\n");
  for (const tier where : all_tiers) text.add_tier(name_of(where), from.tiers[where], most);
  std::array<sequence<std::uint32_t>, 4> sorted;
  for (std::uint32_t index = 0; index < from.chunks.size(); ++index)
    sorted[detail::importance(from.chunks[index].place)].push_back(index);
  text.add("chunks: ", from.chunks.size(), ", of them ", sorted[0].size(), " pinned, ", sorted[1].size(),
           " with a single copy, ", sorted[2].size(), " others that lie somewhere\n");
  std::size_t told = 0;
  for (const auto& group : sorted)
    for (std::size_t index = 0; index < group.size() && told < most; ++index, ++told)
      text.add_chunk(from, group[index], most);
  if (from.chunks.size() > told) text.add("  and ", from.chunks.size() - told, " more\n");
  return text.take();
}

/// The details of an error, where they were requested: the residency, and the last events of a recalling sink.
///
/// @param names   of tensors, as far as they were given
/// @param most    entries of each kind that are listed   @complexity as take_snapshot
template <class Engine>
[[nodiscard]] std::string error_details(const Engine& engine, std::span<const std::string> names, std::size_t most = 24)
{
  std::string text = to_string(take_snapshot_of(engine, names), most);
  if constexpr (recalling_sink<std::remove_cvref_t<decltype(engine.sink())>>)
    text += "last events:\n" + engine.sink().recall(most);
  return text;
}

/// Adds details to an error on its way out, where manager_options::error_details is set.
///
/// The error stays the one that was thrown. If writing its details fails, they stay empty. Cost: nothing until an error
/// is thrown; then one test, or what the writer costs.
/// @code
/// annotator.ask(&write_details, &engine);
/// try { ... } catch (error& failed) { annotator.annotate(failed); throw; }
/// @endcode
class error_annotator {
 public:
  using writer = std::string (*)(const void* about);

  /// From now on errors get the text of `write(about)`.
  void ask(writer write, const void* about) noexcept
  {
    write_ = write;
    about_ = about;
  }

  [[gnu::noinline, gnu::cold]] void annotate(error& failed) const noexcept
  {
    if (write_ == nullptr || !failed.details().empty()) return;
    try {
      failed.add_details(write_(about_).c_str());
    } catch (...) {  // no memory for a text about having no memory
    }
  }

 private:
  writer write_ = nullptr;
  const void* about_ = nullptr;
};

}  // namespace chunkmem::inline v0
