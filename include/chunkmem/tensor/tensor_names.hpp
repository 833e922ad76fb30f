// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

/// The names of the tensors of one model, by their numbers. No two are equal.
///
///     tensor_names names;
///     names.set(0, "embedding");
///     names.name_of(1);  // "tensor.1"
///
/// Memory: the names, and 4 B for each. Cost of `set`: O(log n) comparisons, and 4 B moved for each name behind it in
/// the alphabet.
class tensor_names {
 public:
  /// An empty text takes the name away. Guarantee: strong. @throws config_error   another tensor has this name
  void set(std::uint32_t tensor, std::string_view text)
  {
    const auto place = find(text);
    if (place != order_.end() && names_[*place] == text) {
      if (*place == tensor) return;
      refuse(text, *place, tensor);
    }
    std::string name{text};
    if (names_.size() <= tensor) names_.resize(tensor + std::size_t{1});
    if (!text.empty() && order_.size() == order_.capacity()) order_.reserve(2 * order_.size() + 8);
    if (!names_[tensor].empty()) order_.erase(find(names_[tensor]));  // from here on nothing fails
    if (!text.empty()) order_.insert(find(text), tensor);
    names_[tensor].swap(name);
  }

  /// By tensor, as far as names were given.
  [[nodiscard]] std::span<const std::string> all() const noexcept { return names_; }
  /// Empty where it has none.
  [[nodiscard]] std::string_view of(std::uint32_t tensor) const noexcept
  {
    return tensor < names_.size() ? std::string_view{names_[tensor]} : std::string_view{};
  }
  /// What files call a tensor: its name, or "tensor.<number>".
  [[nodiscard]] std::string name_of(std::uint32_t tensor) const
  {
    return of(tensor).empty() ? "tensor." + std::to_string(tensor) : std::string{of(tensor)};
  }
  /// No tensor has the name that another has for want of one.
  /// @param counts   `counts(tensor)`: a tensor of that number has a place in files
  /// @throws config_error   one has   Cost: O(log n), and O(1) for each name that begins with "tensor."
  template <class Counts>
  void expect_distinct(Counts counts) const
  {
    constexpr std::string_view prefix = "tensor.";
    for (auto it = find(prefix); it != order_.end() && names_[*it].starts_with(prefix); ++it) {
      const std::string_view digits = std::string_view{names_[*it]}.substr(prefix.size());
      std::uint32_t number = 0;
      const auto [end, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
      const bool is_number =
          wrong == std::errc{} && end == digits.data() + digits.size() && (digits.front() != '0' || digits.size() == 1);
      if (is_number && number != *it && of(number).empty() && counts(number)) refuse(names_[*it], number, *it);
    }
  }

 private:
  [[noreturn]] static void refuse(std::string_view name, std::uint32_t first, std::uint32_t second)
  {
    throw config_error{error_text{} << "chunkmem: two tensors of this model are called " << name << ": number " << first
                                    << " and number " << second
                                    << ", in the order of declaration from 0 (give one of them another name)"};
  }
  [[nodiscard]] std::vector<std::uint32_t>::const_iterator find(std::string_view name) const
  {
    return std::lower_bound(order_.begin(), order_.end(), name,
                            [this](std::uint32_t tensor, std::string_view text) { return names_[tensor] < text; });
  }

  std::vector<std::string> names_;    // by tensor
  std::vector<std::uint32_t> order_;  // of the tensors that have a name, in the order of names
};

}  // namespace chunkmem::inline v0
