// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/chunk_table.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/residency_snapshot.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace chunkmem::inline v0 {

namespace detail {

[[nodiscard]] inline frame_use use_of(const chunk_table& from, tier where, std::uint32_t frame) noexcept
{
  const std::uint32_t who = from.space(where).occupant(frame);
  if (who == tier_space::free_frame) return frame_use::free;
  if (who == tier_space::leased_frame) return frame_use::leased;
  const chunk& it = from[who];
  if (where == tier::device) {
    if (it.device_pins > 0) return frame_use::pinned;
    return it.live > 0 && !it.host_valid ? frame_use::sole : frame_use::spare;
  }
  if (it.host_pins > 0) return frame_use::pinned;
  return it.host_valid && !it.on_device() ? frame_use::sole : frame_use::spare;
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
  for (std::uint32_t frame = 0; frame < room.frames(); ++frame) {
    const frame_use use = use_of(from, where, frame);
    const std::uint32_t who = room.occupant(frame);
    free = use == frame_use::free ? free + 1 : 0;
    clearable = use == frame_use::free || (use != frame_use::leased && from.may_leave(where, who)) ? clearable + 1 : 0;
    result.longest_free = std::max(result.longest_free, free);
    result.longest_clearable = std::max(result.longest_clearable, clearable);
    if (result.runs.empty() || result.runs.back().use != use) result.runs.push_back({frame, 0, use});
    ++result.runs.back().frames;
  }
  room.for_leases([&](std::uint64_t begin, std::uint64_t size) { result.leases.push_back({begin, size}); });
  return result;
}

/// All tensors in all lists that they are in, chunk by chunk.
[[nodiscard]] inline std::vector<tensor_snapshot> tensors_of(const registry& tensors,
                                                             std::span<const std::string> names)
{
  std::vector<tensor_snapshot> result;
  for (std::uint32_t list = 0; list < tensors.lists(); ++list)
    for (std::uint32_t id = 0; id < tensors.tensors(); ++id) {
      const tensor_info& info = tensors.info(tensor_id{id});
      if (list > 0 && info.part != role::parameter) continue;
      const slot& it =
          tensors
              .slots()[list == 0 ? tensors.value_slot(tensor_id{id}) : tensors.slot_in(tensor_id{id}, list_id{list})];
      if (it.chunk == slot::nowhere) continue;
      const bool is_named = id < names.size() && !names[id].empty();
      result.push_back({is_named ? names[id] : "tensor." + std::to_string(id), list, info.part, it.chunk, it.offset,
                        bytes{it.size}, it.pins, it.state});
    }
  std::stable_sort(result.begin(), result.end(), [](const tensor_snapshot& left, const tensor_snapshot& right) {
    return left.chunk != right.chunk ? left.chunk < right.chunk : left.offset < right.offset;
  });
  return result;
}

}  // namespace detail

/// Where the tensors of a manager lie. @param names   by tensor, as far as they were given; others are
/// "tensor.<number>"
/// @return   nothing but lists where they are not placed yet   @complexity O(frames + chunks + tensors log tensors),
///   allocates
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
  for (std::uint32_t at = 0; at < result.chunks.size(); ++at) {
    result.chunks[at].place.frames = tensors.frames_of_chunk()[at];
    if (at < from.chunks()) result.chunks[at].place = from[at];
    result.chunks[at].used = bytes{tensors.used()[at]};
  }
  std::vector<tensor_state> states;
  for (std::uint32_t at = 0; at < result.tensors.size(); ++at) {
    const tensor_snapshot& one = result.tensors[at];
    chunk_snapshot& home = result.chunks[one.chunk];
    if (home.tensors++ == 0) {
      home.first_tensor = at;
      home.list = one.list;
      home.part = one.part;
    }
    states.push_back(one.state);
  }
  for (chunk_snapshot& home : result.chunks)
    home.state = state_of_chunk(std::span<const tensor_state>{states}.subspan(home.first_tensor, home.tensors));
  return result;
}

/// The same of an engine, with where its iteration is.
template <class Engine>
[[nodiscard]] residency_snapshot take_snapshot_of(const Engine& engine, std::span<const std::string> names)
{
  residency_snapshot result = take_snapshot(engine.chunks().table(), engine.tensors(), names);
  result.frame = engine.options().chunk_bytes;
  result.iterations = engine.snapshot().iterations;
  result.is_inside = engine.schedule().is_inside();
  result.moment = engine.schedule().progress();
  return result;
}

}  // namespace chunkmem::inline v0
