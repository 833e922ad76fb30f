// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor_names.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// An element type of safetensors that this library does not compute with.
///
///     if (const foreign_type* found = foreign_type_of("F64")) std::cout << found->bits << '\n';  // 64
struct foreign_type {
  std::string_view name;
  unsigned bits;  ///< of one element
};

namespace detail {

inline constexpr foreign_type foreign_types[] = {{"BOOL", 8},        {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6},
                                                 {"I8", 8},          {"F8_E5M2", 8},     {"F8_E4M3", 8}, {"F8_E8M0", 8},
                                                 {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},
                                                 {"U32", 32},        {"C64", 64},        {"F64", 64},    {"U64", 64}};

}  // namespace detail

/// @return   null where safetensors has no such type, or where this library has it too
[[nodiscard]] constexpr const foreign_type* foreign_type_of(std::string_view name) noexcept
{
  for (const foreign_type& it : detail::foreign_types)
    if (it.name == name) return &it;
  return nullptr;
}

/// One tensor in a file: its name, type and extents, and the place of its bytes after the header.
///
///     for (const stored_tensor& it : file.tensors()) std::cout << it.name << ": " << it.size() << " B\n";
struct stored_tensor {
  std::string name;
  dtype type = dtype::float32;
  std::vector<std::uint64_t> extents;  ///< row-major; none for a single number
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  /// an element type that this library lacks: `type` then has no meaning
  const foreign_type* foreign = nullptr;

  [[nodiscard]] std::uint64_t size() const noexcept { return end - begin; }
  [[nodiscard]] bool operator==(const stored_tensor&) const = default;
};

/// The limits of a loader. They are checked before anything of that size is allocated.
///
///     load(m, folder, {.limits = {.tensors = 10'000}});
struct loader_limits {
  bytes header{100'000'000};                       ///< of one file's header
  bytes manifest{std::uint64_t{32} << 20};         ///< for some 6 TB; reading takes about nine times as much memory
  std::uint64_t tensors = std::uint64_t{1} << 24;  ///< of one file
  std::uint32_t rank = 32;
  std::uint32_t name_length = name_rules::longest;  ///< of a tensor, in bytes
};

/// The name of an element type in safetensors.
[[nodiscard]] constexpr std::string_view stored_name_of(dtype type) noexcept
{
  constexpr std::string_view names[] = {"F32", "BF16", "F16", "I32", "I64", "U8"};
  return names[static_cast<std::size_t>(type)];
}
/// @return   none where no element type here has that name
[[nodiscard]] constexpr std::optional<dtype> stored_type(std::string_view name) noexcept
{
  for (const dtype type : {dtype::float32, dtype::bfloat16, dtype::float16, dtype::int32, dtype::int64, dtype::uint8})
    if (stored_name_of(type) == name) return type;
  return {};
}

/// The name of the element type of a tensor in a file, as safetensors has it: "F32", "F64".
[[nodiscard]] constexpr std::string_view stored_name_of(dtype type, const foreign_type* foreign) noexcept
{
  return foreign != nullptr ? foreign->name : stored_name_of(type);
}

/// The product of the extents. @throws size_overflow
[[nodiscard]] inline std::uint64_t elements_of(const std::vector<std::uint64_t>& extents)
{
  bytes elements{1};
  for (const std::uint64_t extent : extents) elements *= extent;
  return elements.count();
}
/// Bytes of a tensor of these extents. @throws size_overflow
[[nodiscard]] inline bytes size_of_tensor(dtype type, const std::vector<std::uint64_t>& extents)
{
  return bytes{elements_of(extents)} * size_of(type);
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
