// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/optimizer/element_streams.hpp>
#include <chunkmem/optimizer/instruction_set.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

/// Where the value is rounded from; null where it is not, or where a gradient lies in its place. Such a value is not
/// kept: the update overwrites it, so nobody had to bring its bytes.
[[nodiscard]] inline const float* master_of(const parameter_bytes& all) noexcept
{
  for (std::size_t at = 0; at < all.list_count; ++at)
    if (all.lists[at].use == list_use::master && all.value != all.gradient)
      return reinterpret_cast<const float*>(all.lists[at].data);
  return nullptr;
}

/// Calls `visit(data, size)` for all bytes that an update of this parameter writes and that cannot be made again:
/// value, then lists.
template <class Visit>
void for_written_bytes(const parameter_bytes& all, Visit visit)
{
  if (master_of(all) == nullptr) visit(all.value, static_cast<std::size_t>(all.elements * size_of(all.value_type)));
  for (std::size_t at = 0; at < all.list_count; ++at)
    if (all.lists[at].data != nullptr)
      visit(all.lists[at].data, static_cast<std::size_t>(all.elements * size_of(all.lists[at].type)));
}

/// What keeping them takes at most. @tparam Walk   knows which lists a parameter is in
template <class Walk, class Info>
[[nodiscard]] std::uint64_t undo_size(const Walk& walk, const Info& info)
{
  std::uint64_t size = info.extents.elements() * size_of(info.type);
  walk.for_each_list(info, [&](auto, dtype type) { size += info.extents.elements() * size_of(type); });
  return size;
}

/// Copies them to `room`, one behind the other.
inline void keep_bytes(const parameter_bytes& all, std::byte* room)
{
  for_written_bytes(all, [&](const std::byte* data, std::size_t size) {
    std::memcpy(room, data, size);
    room += size;
  });
}
/// And back; a value that was not kept is rounded from its master, as its update had rounded it.
inline void bring_back_bytes(const parameter_bytes& all, const std::byte* room)
{
  for_written_bytes(all, [&](std::byte* data, std::size_t size) {
    std::memcpy(data, room, size);
    room += size;
  });
  const float* const master = master_of(all);
  if (master == nullptr) return;
  const float_environment fixed;
  with_elements(all.value, all.value_type, 0, [&](auto* stored) {
    for_elements(best_instruction_set(), narrow_work{}, static_cast<std::size_t>(all.elements), stored, master);
  });
}

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
