// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/checked.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/interop/dlpack_type.hpp>
#include <chunkmem/tensor/access.hpp>
#include <chunkmem/tensor/shape.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {
namespace interop {

/// Calls the deleter of a tensor that was handed over, once.
///
///     const std::unique_ptr<DLManagedTensor, dlpack_ends<DLManagedTensor>> owner{given};
template <dlpack_managed Managed>
struct dlpack_ends {
  void operator()(Managed* it) const noexcept
  {
    if (it->deleter != nullptr) it->deleter(it);
  }
};

/// Owns a tensor that another program handed over, and calls its deleter at the end. Refuses a struct of an unknown
/// version.
///
/// Use:
///
///     const auto foreign = interop::own_dlpack(at::toDLPack(tensor));   // of LibTorch
///     interop::fill(m, weight, foreign->dl_tensor);
///
/// @throws usage_error   null; or the struct has a newer major version. Then its deleter was called, and nothing else
///   of it was read
template <dlpack_managed Managed>
[[nodiscard]] std::unique_ptr<Managed, dlpack_ends<Managed>> own_dlpack(Managed* handed_over)
{
  std::unique_ptr<Managed, dlpack_ends<Managed>> it{handed_over};
  if (it == nullptr) throw usage_error{"a null DLPack tensor was handed over (a capsule gives its pointer only once)"};
  if constexpr (dlpack_versioned<Managed>) {
    if (it->version.major > dlpack_major_version)
      throw usage_error{error_text{} << "chunkmem: a DLPack tensor of version " << std::uint64_t{it->version.major}
                                     << ", and at most " << std::uint64_t{dlpack_major_version}
                                     << " is known here (ask the producer for an older one)"};
  }
  return it;
}

namespace detail {

[[noreturn]] inline void refuse_foreign(std::string_view what, std::string_view remedy)
{
  throw usage_error{error_text{} << "chunkmem: a DLPack tensor cannot be taken: " << what << " (" << remedy << ")"};
}

inline constexpr int most_axes = 64;  ///< the most that frameworks have

/// The number of elements, after every check that a foreign struct allows.
inline std::uint64_t checked_elements(const DLTensor& from, dtype wanted)
{
  if (!is_same_type(from.dtype, dlpack_type_of(wanted)))
    throw usage_error{error_text{} << "chunkmem: a DLPack tensor cannot be taken: its elements are of code "
                                   << std::uint64_t{from.dtype.code} << ", " << std::uint64_t{from.dtype.bits}
                                   << " bits and " << std::uint64_t{from.dtype.lanes} << " lanes, wanted is "
                                   << name_of(wanted) << " (convert it where it comes from)"};
  if (!is_readable_here(from.device))
    refuse_foreign("its memory is not the host's", "copy it to the CPU where it comes from");
  if (from.ndim < 0 || from.ndim > most_axes || (from.ndim > 0 && from.shape == nullptr))
    refuse_foreign("it has no shape, or too many axes", "the struct is damaged");
  checked elements = 1;
  for (int axis = 0; axis < from.ndim; ++axis) {
    if (from.shape[axis] < 0) refuse_foreign("an extent is negative", "the struct is damaged");
    elements *= static_cast<std::uint64_t>(from.shape[axis]);
  }
  if (elements.value() > 0 && from.data == nullptr) refuse_foreign("it has no bytes", "its producer may have none yet");
  (void)(elements * checked{size_of(wanted)});  // as bytes it has to be countable too
  return elements.value();
}

/// Elements lie in the usual order without gaps. Axes of one element may have any stride. @pre   it was checked
[[nodiscard]] inline bool is_compact(const DLTensor& from) noexcept
{
  if (from.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (int axis = from.ndim; axis-- > 0;) {
    if (from.shape[axis] == 0) return true;
    if (from.shape[axis] != 1 && from.strides[axis] != expected) return false;
    expected *= from.shape[axis];
  }
  return true;
}

[[nodiscard]] inline const std::byte* first_byte(const DLTensor& from) noexcept
{
  return static_cast<const std::byte*>(from.data) + from.byte_offset;
}

/// Copies element by element, rows from the last axis. The producer vouches for the places of the elements.
/// @pre   checked, not empty
inline void copy_strided(const DLTensor& from, std::size_t size, int axis, const std::byte* source, std::byte*& to)
{
  if (axis == from.ndim) {
    std::memcpy(to, source, size);
    to += size;
    return;
  }
  const std::int64_t step = from.strides[axis] * static_cast<std::int64_t>(size);
  for (std::int64_t index = 0; index < from.shape[axis]; ++index)
    copy_strided(from, size, axis + 1, source + index * step, to);
}

[[nodiscard]] inline bool has_shape(const DLTensor& from, const shape& wanted) noexcept
{
  if (static_cast<std::size_t>(from.ndim) != wanted.rank()) return false;
  for (std::size_t axis = 0; axis < wanted.rank(); ++axis)
    if (static_cast<std::uint64_t>(from.shape[axis]) != wanted[axis]) return false;
  return true;
}

}  // namespace detail

/// The elements of a foreign tensor in their place. The span is good as long as the tensor is.
///
/// @throws usage_error   another element type, not the host's memory, not compact in the usual order, not aligned for
///                       its elements, or no bytes; size_overflow   more bytes than 64 bits count
template <element Element>
[[nodiscard]] std::span<const Element> span_of(const DLTensor& from)
{
  const std::uint64_t elements = detail::checked_elements(from, dtype_of<Element>);
  if (elements == 0) return {};
  if (!detail::is_compact(from))
    detail::refuse_foreign("its elements have gaps or another order",
                           "copy it with copy_of or fill, or make it contiguous");
  const std::byte* const begin = detail::first_byte(from);
  if (reinterpret_cast<std::uintptr_t>(begin) % alignof(Element) != 0)
    detail::refuse_foreign("its first element is not aligned", "copy it with copy_of or fill");
  return {reinterpret_cast<const Element*>(begin), static_cast<std::size_t>(elements)};
}

/// Copies a foreign tensor with any strides, bit for bit, in the usual order.
///
/// @param to   as many elements; the two may not overlap
/// @throws usage_error     as span_of, but for order and alignment; or another number of elements; nothing was written
/// @throws size_overflow   as span_of
/// @complexity   O(elements); one copy where they are compact
template <element Element>
void copy_of(const DLTensor& from, std::span<Element> to)
{
  const std::uint64_t elements = detail::checked_elements(from, dtype_of<Element>);
  if (elements != to.size())
    throw usage_error{error_text{} << "chunkmem: a DLPack tensor of " << elements << " elements was to be copied to "
                                   << std::uint64_t{to.size()} << " (give it the shape of its target)"};
  if (elements == 0) return;
  std::byte* out = std::as_writable_bytes(to).data();
  if (detail::is_compact(from))
    std::memcpy(out, detail::first_byte(from), to.size_bytes());
  else
    detail::copy_strided(from, sizeof(Element), 0, detail::first_byte(from), out);
}

/// Fills a tensor of a manager from a foreign tensor of its shape and element type, bit for bit.
///
/// @param place   the tier that is written first: the calling thread must reach it. The default is the device where the
///   thread reaches it, else the host
/// @throws usage_error   as copy_of; another shape; or the tensor cannot be written now; it is as it was
/// @throws out_of_memory, device_error   as acquire; the tensor is as it was
template <class Manager, element Element>
void fill(Manager& m, tensor<Element> to, const DLTensor& from,
          memory_location place = Manager::engine_type::host_addressable ? memory_location::device
                                                                         : memory_location::host)
{
  (void)detail::checked_elements(from, dtype_of<Element>);
  if (!detail::has_shape(from, m.info(to).extents))
    detail::refuse_foreign("its shape is not that of the tensor to fill", "reshape it where it comes from");
  const auto pin = m.acquire(to, access::write, place);
  if (!m.rehearsing()) copy_of<Element>(from, pin.span());
}

}  // namespace interop
}  // namespace chunkmem::inline v0
