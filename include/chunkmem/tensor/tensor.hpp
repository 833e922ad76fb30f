// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstdint>
#include <type_traits>

namespace chunkmem::inline v0 {

/// A tensor of a manager, without its element type: what untyped code passes around.
///
///     m.for_each_tensor([&](tensor_handle it, const tensor_info&) { std::cout << m.name_of(it) << '\n'; });
///
/// Stable: it stays good when chunks move, grow or are laid out again. `owner` tells managers apart, so that a handle
/// of one is never used with another.
struct tensor_handle {
  tensor_id id = tensor_id::none;
  std::uint32_t owner = 0;

  [[nodiscard]] constexpr bool operator==(const tensor_handle&) const noexcept = default;
};

/// A tensor of a manager. Eight bytes, trivially copyable, no ownership.
///
///     const tensor<float> weight = m.add<float>({1'024, 1'024}, role::parameter);
template <element Element>
struct tensor : tensor_handle {
  using element_type = Element;
};

static_assert(sizeof(tensor<float>) == 8 && std::is_trivially_copyable_v<tensor<float>>);

}  // namespace chunkmem::inline v0
