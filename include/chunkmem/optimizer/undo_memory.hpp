#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

/// Calls `visit(data, size)` for all bytes that an update of this parameter writes: value, then lists.
template <class Visit>
void for_written_bytes(const parameter_bytes& all, Visit visit)
{
  visit(all.value, static_cast<std::size_t>(all.elements * size_of(all.value_type)));
  for (std::size_t at = 0; at < all.list_count; ++at)
    if (all.lists[at].data != nullptr) visit(all.lists[at].data, static_cast<std::size_t>(all.elements * size_of(all.lists[at].type)));
}

/// What keeping them takes. @tparam Walk   knows which lists a parameter is in
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
/// And back.
inline void bring_back_bytes(const parameter_bytes& all, const std::byte* room)
{
  for_written_bytes(all, [&](std::byte* data, std::size_t size) {
    std::memcpy(data, room, size);
    room += size;
  });
}

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
