// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/chunk/place_all.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/tensor/access.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// One tensor in one list: where its bytes are and what may happen to them. 32 bytes.
///
///     const slot& it = tensors[id];
///     std::byte* const begin = chunk + it.offset;
struct slot {
  chunk_id chunk = chunk_id::none;               ///< none: the tensor is not in this list
  std::uint32_t next_access_index = UINT32_MAX;  ///< of its next entry in the record being followed
  std::uint64_t offset = 0;                      ///< in its chunk [bytes]
  std::uint64_t size = 0;                        ///< [bytes]
  std::uint32_t pins = 0;
  tensor_state state = tensor_state::free;
  bool starts_at_zero = false;  ///< its first use finds zeros: lists of optimizers
  std::uint16_t host_pins = 0;  ///< those of its pins that are on the host

  [[nodiscard]] std::uint32_t pins_in(memory_location place) const noexcept
  {
    return place == memory_location::host ? host_pins : pins - host_pins;
  }
};

static_assert(sizeof(slot) == 32);

/// Slots and the chunks they lie in.
///
///     table.place(order, append_layout{}, 4_MiB);
struct slot_table {
  sequence<slot> slots;
  sequence<std::uint32_t> chunk_of_slot;
  sequence<std::uint32_t> frames_of_chunk;
  sequence<std::uint64_t> used;  ///< bytes of each chunk

  /// Places slots of known sizes, in this order, into fresh chunks behind those that are there. O(slots).
  /// @throws what the layout throws; chunks and places are worth nothing then
  template <chunk_layout Layout>
  void place(std::span<const slot_id> order, Layout layout, bytes frame)
  {
    sequence<bytes> sizes;
    sizes.reserve(order.size());
    for (const slot_id each : order) sizes.push_back(bytes{slots[index_of(each)].size});
    sequence<chunk_place> places(sizes.size());
    layout.reset(frame);
    place_all(layout, sizes, places);
    const auto base = static_cast<std::uint32_t>(frames_of_chunk.size());
    for (std::size_t index = 0; index < order.size(); ++index) {
      slot& target = slots[index_of(order[index])];
      const std::uint32_t chunk = base + places[index].chunk;
      target.chunk = chunk_id{chunk};
      target.offset = places[index].offset;
      if (chunk >= frames_of_chunk.size()) {
        frames_of_chunk.resize(chunk + 1, 1);
        used.resize(chunk + 1, 0);
      }
      frames_of_chunk[chunk] = std::max(frames_of_chunk[chunk], places[index].frames);
      used[chunk] = std::max(used[chunk], target.offset + align_up(sizes[index], tensor_alignment).count());
    }
  }

  /// After the last list was placed. O(slots).
  void finish()
  {
    chunk_of_slot.resize(slots.size());
    std::transform(slots.begin(), slots.end(), chunk_of_slot.begin(),
                   [](const slot& slot_state) { return index_of(slot_state.chunk); });
  }
};

}  // namespace chunkmem::inline v0
