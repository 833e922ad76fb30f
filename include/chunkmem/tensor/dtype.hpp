// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace chunkmem::inline v0 {

class bf16;  // tensor/half.hpp
class fp16;

/// Element types that a tensor may have.
enum class dtype : std::uint8_t { float32, bfloat16, float16, int32, int64, uint8 };

[[nodiscard]] constexpr std::size_t size_of(dtype type) noexcept
{
  constexpr std::size_t sizes[] = {4, 2, 2, 4, 8, 1};
  return sizes[static_cast<std::size_t>(type)];
}

[[nodiscard]] constexpr std::string_view name_of(dtype type) noexcept
{
  constexpr std::string_view names[] = {"float32", "bfloat16", "float16", "int32", "int64", "uint8"};
  return names[static_cast<std::size_t>(type)];
}

namespace detail {
template <class Element>
struct dtype_for {};
template <dtype Type>
using dtype_constant = std::integral_constant<dtype, Type>;
template <>
struct dtype_for<float> : dtype_constant<dtype::float32> {};
template <>
struct dtype_for<bf16> : dtype_constant<dtype::bfloat16> {};
template <>
struct dtype_for<fp16> : dtype_constant<dtype::float16> {};
template <>
struct dtype_for<std::int32_t> : dtype_constant<dtype::int32> {};
template <>
struct dtype_for<std::int64_t> : dtype_constant<dtype::int64> {};
template <>
struct dtype_for<std::uint8_t> : dtype_constant<dtype::uint8> {};
}  // namespace detail

/// A C++ type that stands for one of the element types above.
template <class Element>
concept element = requires { detail::dtype_for<Element>::value; };

template <element Element>
inline constexpr dtype dtype_of = detail::dtype_for<Element>::value;

}  // namespace chunkmem::inline v0
