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

/// One tensor in a file: its name, type and extents, and the place of its bytes after the header.
///
///     for (const stored_tensor& it : file.tensors()) std::cout << it.name << ": " << it.size() << " B\n";
struct stored_tensor {
  std::string name;
  dtype type = dtype::float32;
  std::vector<std::uint64_t> extents;  ///< row-major; none for a single number
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  [[nodiscard]] std::uint64_t size() const noexcept { return end - begin; }
  [[nodiscard]] bool operator==(const stored_tensor&) const = default;
};

/// The limits of a loader. They are checked before anything of that size is allocated.
///
///     load(m, folder, {.limits = {.tensors = 10'000}});
struct loader_limits {
  bytes header{std::uint64_t{64} << 20};           ///< of one file's header
  bytes manifest{std::uint64_t{32} << 20};         ///< some 6 TB; reading it takes about nine times as much memory
  std::uint64_t tensors = std::uint64_t{1} << 24;  ///< of one file
  std::uint32_t rank = 16;
  std::uint32_t name_length = name_rules::longest;  ///< of a tensor, in bytes
  std::uint32_t text_length = 1U << 20;             ///< of one text of a header's metadata, in bytes
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

/// Bytes of a tensor of these extents. @throws size_overflow
[[nodiscard]] inline bytes size_of_tensor(dtype type, const std::vector<std::uint64_t>& extents)
{
  bytes size{size_of(type)};
  for (const std::uint64_t extent : extents) size *= extent;
  return size;
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
