// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/tensor/access.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// A tensor of a block: its handle, its size, and a way to read its bytes whatever its type is.
///
///     const saved_tensor<Manager> made = make_saved_tensor(m, hidden, "layer 0 saved ", 0);
///     std::cout << made.size.count() << " B\n";
template <class Manager>
struct saved_tensor {
  tensor_handle handle;
  bytes size;
  std::uint64_t (*sum_of)(Manager&, tensor_handle) = nullptr;
};

namespace detail {

/// A sum of bytes in their order, for checks (FNV-1a, Fowler, Noll and Vo 1991).
[[nodiscard]] inline std::uint64_t sum_of_bytes(std::span<const std::byte> content) noexcept
{
  std::uint64_t sum = 0xcbf29ce484222325U;
  for (const std::byte value : content) sum = (sum ^ std::to_integer<std::uint64_t>(value)) * 0x100000001b3U;
  return sum;
}

template <class Manager, element Element>
[[nodiscard]] std::uint64_t sum_of_tensor(Manager& manager, tensor_handle handle)
{
  const auto pin = manager.acquire(tensor<Element>{handle}, access::read);
  return sum_of_bytes(std::as_bytes(pin.span()));
}

}  // namespace detail

/// @throws usage_error   not a tensor of this manager
template <class Manager, element Element>
[[nodiscard]] saved_tensor<Manager> make_saved_tensor(Manager& manager, tensor<Element> declared, std::string prefix,
                                                      std::size_t number)
{
  manager.name(declared, prefix + std::to_string(number));
  saved_tensor<Manager> made;
  made.handle = declared;
  made.size = bytes{manager.info(declared).extents.elements() * sizeof(Element)};
  if constexpr (Manager::engine_type::host_addressable) made.sum_of = &detail::sum_of_tensor<Manager, Element>;
  return made;
}

/// The tensors of one block.
///
///     bytes all;
///     for (const auto& each : block.tensors().inner) all += each.size;
template <class Manager>
struct block_tensors {
  using list = std::vector<saved_tensor<Manager>>;
  list inner;    ///< saved for the backward callback alone
  list outputs;  ///< read by the next block too

  [[nodiscard]] static bool has(const list& in, tensor_handle wanted) noexcept
  {
    return std::ranges::any_of(in, [&](const auto& each) { return each.handle == wanted; });
  }
  [[nodiscard]] static bytes size_of(const list& all)
  {
    bytes sum;
    for (const auto& each : all) sum += align_up(each.size, tensor_alignment);
    return sum;
  }
};

}  // namespace activation

}  // namespace chunkmem::inline v0
