// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/read_elements.hpp>
#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// Counts what rounding to a narrower type makes of the numbers of a load, an import or an export, and refuses it where
/// finite numbers would become infinite.
///
///     narrowing found{options.allow_overflow};
///     check_narrowing(items, index, from, found);  // before anything is written
class narrowing {
 public:
  /// @param allow_overflow   count them only
  explicit narrowing(bool allow_overflow) noexcept : allow_overflow_{allow_overflow} {}

  /// Takes in elements of one tensor. @throws config_error   finite ones would become infinite
  void add(std::string_view name, const rounded_numbers& of, dtype to)
  {
    if (of.overflows != 0 && !allow_overflow_)
      throw config_error{error_text{} << "chunkmem: " << of.overflows << " of the elements of " << name
                                      << " are finite as they are stored, and would be infinite in " << name_of(to)
                                      << " (take a type with their range, or allow_overflow where infinities are "
                                         "wanted)"};
    total_ += of;
  }
  [[nodiscard]] const rounded_numbers& total() const noexcept { return total_; }

 private:
  bool allow_overflow_;
  rounded_numbers total_;
};

/// Numbers of one type may become infinite or zero in another.
[[nodiscard]] constexpr bool is_narrower(dtype to, dtype from) noexcept
{
  return to != from && to != dtype::float32 && !(from == dtype::float16 && to == dtype::bfloat16);
}

/// Rounds the stored elements of a value or a list as a load will, and writes nothing.
/// @param found   takes them in, if this rank writes them   @throws as `from`; config_error as `found`
/// @complexity   reads what is narrowed, and nothing else
template <element_reader Reader>
void check_narrowing(const model_item& item, const stored_index& index, Reader& from, narrowing& found)
{
  constexpr std::uint64_t at_once = 8192;
  std::vector<std::byte> made;
  for (const item_piece& piece : item.pieces) {
    const stored_value* const known = index.find(piece.name);
    if (known == nullptr || !is_narrower(item.value_type, known->type)) continue;
    made.resize(at_once * size_of(item.value_type));
    rounded_numbers of;
    for (std::uint64_t done = 0; done < piece.elements; done += at_once)
      of += read_elements(from, *known, piece.first + done, std::min(at_once, piece.elements - done), made.data(),
                          item.value_type);
    found.add(piece.name, of, item.value_type);
  }
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
