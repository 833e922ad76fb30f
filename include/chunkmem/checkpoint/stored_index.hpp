// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// Consecutive elements of a tensor in one file.
///
///     for (const stored_run& it : weight.runs) std::cout << it.elements << " in file " << it.file << '\n';
struct stored_run {
  std::uint64_t first = 0;  ///< element of the tensor, in row-major order
  std::uint64_t elements = 0;
  std::uint32_t file = 0;
  std::uint64_t begin = 0;  ///< byte of the file
};

/// A tensor of a checkpoint: where all of its elements are.
///
///     if (const stored_value* found = index.find("embedding"); found != nullptr) runs = found->runs.size();
struct stored_value {
  dtype type = dtype::float32;
  std::vector<std::uint64_t> extents;
  std::vector<stored_run> runs;           ///< in the order of elements, without gaps
  const foreign_type* foreign = nullptr;  ///< an element type that this library lacks: its elements cannot be read

  [[nodiscard]] std::string_view type_name() const noexcept { return stored_name_of(type, foreign); }
};

/// The name of elements [first, end) of a tensor in files.
[[nodiscard]] inline std::string part_name(std::string_view tensor, std::uint64_t first, std::uint64_t end)
{
  return std::string{tensor} + '[' + std::to_string(first) + ':' + std::to_string(end) + ']';
}

/// A name in the form of a part's.
///
///     if (const auto part = part_of_name("embedding[0:4096]")) std::cout << part->tensor << '\n';  // embedding
struct part_label {
  std::string_view tensor;
  std::uint64_t first = 0;
  std::uint64_t end = 0;
};
/// @return   none where the name has not that form. The result refers to `name`
[[nodiscard]] inline std::optional<part_label> part_of_name(std::string_view name)
{
  const std::size_t open = name.rfind('[');
  if (open == name.npos || !name.ends_with(']')) return {};
  part_label found{name.substr(0, open), 0, 0};
  const char* const last = name.data() + name.size() - 1;
  const auto [colon, wrong] = std::from_chars(name.data() + open + 1, last, found.first);
  if (wrong != std::errc{} || colon == last || *colon != ':') return {};
  const auto [end, bad] = std::from_chars(colon + 1, last, found.end);
  if (bad != std::errc{} || end != last || found.first >= found.end ||
      part_name(found.tensor, found.first, found.end) != name)
    return {};
  return found;
}

/// Tensors of a checkpoint by name, over all files and ranks.
///
///     const stored_index index{generation};
///     if (const stored_value* weight = index.find("embedding"); weight != nullptr) wanted = weight->extents;
class stored_index {
 public:
  using map_type = std::map<std::string_view, stored_value>;

  /// @param from   outlives this: names are its own
  /// @throws format_error   two parts of one tensor overlap, a part is missing, or parts have two types; config_error
  ///   two entries have one name
  explicit stored_index(const whole_generation& from)
  {
    for (const divided_tensor& it : from.content.divided) {
      expect_countable(it);
      add(it.name, {{}, it.extents, {}});
      divided_.insert(it.name);
    }
    for (std::uint32_t file = 0; file < from.files.size(); ++file)
      for (const stored_tensor& stored : from.files[file].tensors)
        add_entry(stored, {0, 0, file, from.files[file].payload + stored.begin});
    for (auto& [name, value] : tensors_) check(name, value);
  }
  /// The index of one file that is no generation.
  stored_index(const std::vector<stored_tensor>& table, std::uint64_t payload)
  {
    for (const stored_tensor& stored : table) add_entry(stored, {0, 0, 0, payload + stored.begin});
    for (auto& [name, value] : tensors_) check(name, value);
  }

  [[nodiscard]] const stored_value* find(std::string_view name) const
  {
    const auto known = tensors_.find(name);
    return known == tensors_.end() ? nullptr : &known->second;
  }
  [[nodiscard]] const map_type& all() const noexcept { return tensors_; }
  /// Adds the tensors of another folder. @param from   its names outlive this   @param first_file   the number here of
  /// its first file   @return   names that both have: the entries of this object stay
  std::vector<std::string_view> join(const stored_index& from, std::uint32_t first_file)
  {
    std::vector<std::string_view> twice;
    for (const auto& [name, value] : from.all()) {
      const auto [it, is_new] = tensors_.emplace(name, value);
      if (!is_new) twice.push_back(name);
      for (stored_run& run : it->second.runs) run.file += is_new ? first_file : 0;
    }
    return twice;
  }

 private:
  void add(std::string_view name, stored_value value)
  {
    if (!tensors_.emplace(name, std::move(value)).second)
      throw config_error{error_text{} << "chunkmem: this checkpoint has two tensors of one name: " << name
                                      << " (it was put together by hand?)"};
  }
  void add_entry(const stored_tensor& stored, stored_run where)
  {
    const std::optional<part_label> part = part_of_name(stored.name);
    if (!part || !divided_.contains(part->tensor)) {
      where.elements = elements_of(stored.extents);
      return add(stored.name, {stored.type, stored.extents, {where}, stored.foreign});
    }
    stored_value& value = tensors_.find(part->tensor)->second;
    where.first = part->first;
    where.elements = part->end - part->first;
    if (stored.extents != std::vector{where.elements})
      refuse(part->tensor, "a part has another size than its name says");
    if (!value.runs.empty() && value.type_name() != stored_name_of(stored.type, stored.foreign))
      refuse(part->tensor, "its parts have several element types");
    value.type = stored.type;
    value.foreign = stored.foreign;
    value.runs.push_back(where);
  }

  static void expect_countable(const divided_tensor& it)
  {
    try {
      (void)elements_of(it.extents);
    } catch (const size_overflow&) {
      refuse(it.name, "it has more elements than can be counted");
    }
  }
  static void check(std::string_view name, stored_value& it)
  {
    std::ranges::sort(it.runs, {}, &stored_run::first);
    std::uint64_t next = 0;
    for (const stored_run& run : it.runs) {
      if (run.first < next) refuse(name, "its parts overlap");
      if (run.first > next) refuse(name, "a part is missing, from element", next);
      next = run.first + run.elements;
    }
    if (next != elements_of(it.extents)) refuse(name, "a part is missing or too much, from element", next);
  }
  [[noreturn]] static void refuse(std::string_view name, std::string_view why, std::optional<std::uint64_t> at = {})
  {
    error_text text;
    text << "chunkmem: a checkpoint cannot be used: " << name << ": " << why;
    if (at) text << " " << *at;
    throw format_error{text << " (files of several checkpoints were mixed?)"};
  }

  map_type tensors_;
  std::set<std::string_view> divided_;
};

/// Whether elements of one type can be read as another: real numbers of any precision.
[[nodiscard]] inline bool is_convertible(dtype from, dtype to) noexcept
{
  const auto is_real = [](dtype type) { return type == dtype::float32 || is_16_bit(type); };
  return from == to || (is_real(from) && is_real(to));
}

/// Whether the elements of a stored tensor can be read as this type.
[[nodiscard]] inline bool is_convertible(const stored_value& from, dtype to) noexcept
{
  return from.foreign == nullptr && is_convertible(from.type, to);
}

/// Counts of the numbers that rounding has lost.
///
///     const rounded_numbers found = read_elements(from, value, 0, elements, to, dtype::float16);
struct rounded_numbers {
  std::uint64_t overflows = 0;   ///< finite numbers that became infinite
  std::uint64_t underflows = 0;  ///< other numbers than zero that became zero

  constexpr rounded_numbers& operator+=(const rounded_numbers& more) noexcept
  {
    overflows += more.overflows;
    underflows += more.underflows;
    return *this;
  }
  [[nodiscard]] constexpr bool operator==(const rounded_numbers&) const noexcept = default;
};

namespace detail {

/// The magnitude as bits, in the same order. Integers do not depend on the caller's floating-point environment.
[[nodiscard]] inline std::uint32_t magnitude_bits(float value) noexcept
{
  return bits_as<std::uint32_t>(value) & ~chunkmem::detail::sign_bit;
}

template <class From, class To>
rounded_numbers convert(std::span<const std::byte> from, std::byte* to) noexcept
{
  rounded_numbers lost;
  for (std::size_t index = 0; index < from.size() / sizeof(From); ++index) {
    From value;
    std::memcpy(&value, from.data() + index * sizeof(From), sizeof value);
    const To made = round_to<To>(to_float(value));
    std::memcpy(to + index * sizeof(To), &made, sizeof made);
    const std::uint32_t before = magnitude_bits(to_float(value)), after = magnitude_bits(to_float(made));
    constexpr std::uint32_t infinite = chunkmem::detail::infinity_bits;
    lost.overflows += before < infinite && after >= infinite ? 1 : 0;
    lost.underflows += before != 0 && after == 0 ? 1 : 0;
  }
  return lost;
}
template <class From>
rounded_numbers convert(std::span<const std::byte> from, std::byte* to, dtype type) noexcept
{
  if (type == dtype::float32) return convert<From, float>(from, to);
  return type == dtype::bfloat16 ? convert<From, bf16>(from, to) : convert<From, fp16>(from, to);
}

}  // namespace detail

/// Converts elements of one real type to another, rounded to nearest. @return   the numbers that were lost
/// @pre is_convertible, and not equal
inline rounded_numbers convert(std::span<const std::byte> from, dtype from_type, std::byte* to, dtype to_type) noexcept
{
  if (from_type == dtype::float32) return detail::convert<float>(from, to, to_type);
  if (from_type == dtype::bfloat16) return detail::convert<bf16>(from, to, to_type);
  return detail::convert<fp16>(from, to, to_type);
}

/// A reader of bytes of files: a generation, or a plain file.
template <class Reader>
concept element_reader = requires(Reader& from, std::uint32_t file, std::uint64_t begin, std::span<std::byte> to) {
  from.read(file, begin, to);
};

/// Reads elements [first, first + elements) of a stored tensor, as elements of `type`.
/// @param to   room for them @return   the numbers that rounding lost
/// @pre   the elements are in the tensor, and is_convertible @throws as `from`
template <element_reader Reader>
rounded_numbers read_elements(Reader& from, const stored_value& it, std::uint64_t first, std::uint64_t elements,
                              std::byte* to, dtype type)
{
  rounded_numbers lost;
  if (elements == 0) return lost;
  const std::size_t width = size_of(it.type);
  std::array<std::byte, 16384> part;
  auto run = std::ranges::upper_bound(it.runs, first, {}, &stored_run::first) - 1;
  while (elements > 0) {
    const std::uint64_t left = run->first + run->elements - first;
    const std::uint64_t count = std::min({elements, left, it.type == type ? left : part.size() / width});
    const std::uint64_t begin = run->begin + (first - run->first) * width;
    const auto size = static_cast<std::size_t>(count * width);
    if (it.type == type) {
      from.read(run->file, begin, {to, size});
    } else {
      from.read(run->file, begin, std::span{part}.first(size));
      lost += convert(std::span{part}.first(size), it.type, to, type);
    }
    to += count * size_of(type);
    elements -= count;
    first += count;
    if (first == run->first + run->elements) ++run;
  }
  return lost;
}

/// Reads elements [first, first + elements) of a piece, in the order of the model. @pre, @throws as read_elements; the
/// piece is stored
/// @complexity   for a piece that the file has transposed: a read for each of its columns; memory: one column
template <element_reader Reader>
rounded_numbers read_piece(Reader& from, const item_piece& piece, std::uint64_t first, std::uint64_t elements,
                           std::byte* to, dtype type)
{
  first += piece.first;
  if (!piece.is_transposed || elements == 0) return read_elements(from, *piece.stored, first, elements, to, type);
  const std::uint64_t columns = piece.extents[1], rows = piece.extents[0], end = first + elements;
  const std::uint64_t first_row = first / columns, last_row = (end - 1) / columns;
  const std::size_t width = size_of(type);
  std::vector<std::byte> column(static_cast<std::size_t>(last_row - first_row + 1) * width);
  rounded_numbers lost;
  for (std::uint64_t at = 0; at < columns; ++at) {
    const std::uint64_t begin = first_row + (first_row * columns + at < first ? 1 : 0);
    const std::uint64_t stop = last_row + (last_row * columns + at < end ? 1 : 0);
    if (begin >= stop) continue;
    lost += read_elements(from, *piece.stored, at * rows + begin, stop - begin, column.data(), type);
    for (std::uint64_t row = begin; row < stop; ++row)
      std::memcpy(to + (row * columns + at - first) * width, column.data() + (row - begin) * width, width);
  }
  return lost;
}

/// Counts the numbers of a load, an import or an export that rounding to a narrower type loses, and refuses it where
/// finite numbers would become infinite.
///
///     narrowing found{options.allow_overflow};
///     check_narrowing(items, index, from, found);  // before anything is written
class narrowing {
 public:
  /// @param allow_overflow   only count overflows
  explicit narrowing(bool allow_overflow) noexcept : allow_overflow_{allow_overflow} {}

  /// Adds the losses of one tensor. @throws config_error   finite numbers would become infinite
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

/// Whether numbers of one type may become infinite or zero in another.
[[nodiscard]] constexpr bool is_narrower(dtype to, dtype from) noexcept
{
  return to != from && to != dtype::float32 && !(from == dtype::float16 && to == dtype::bfloat16);
}

/// Rounds the stored elements of a value or a list as a load will, and writes nothing.
/// @param found   counts the losses, if this rank writes the item   @throws as `from`; config_error as `found`
/// @complexity   reads only the elements that are narrowed
template <element_reader Reader>
void check_narrowing(const model_item& item, Reader& from, narrowing& found)
{
  std::vector<std::byte> made;
  for (const item_piece& piece : item.pieces) {
    if (piece.stored == nullptr || !is_narrower(item.value_type, piece.stored->type)) continue;
    const std::uint64_t at_once = piece.is_transposed ? std::uint64_t{1} << 20 : 8192;  // fewer reads of columns
    made.resize(at_once * size_of(item.value_type));
    rounded_numbers of;
    for (std::uint64_t done = 0; done < piece.elements; done += at_once)
      of += read_piece(from, piece, done, std::min(at_once, piece.elements - done), made.data(), item.value_type);
    found.add(piece.name, of, item.value_type);
  }
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
