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

/// The rules for names that a checkpoint holds. Declarations and saves use the same rules, so a declared model can be
/// saved.
///
///     name_rules::expect_tensor("blocks.0.query");
///     name_rules::expect_beside("blocks.0.query", "adam/momentum");
///
/// In a file, a tensor has its name, an optimizer's list of it "adam/momentum/<name>", a registered state
/// "state/<name>", and a part of a tensor that ranks divide "<name>[0:7]". A load would misread a name that looks like
/// one of these. Cost: O(characters), no allocation.
struct name_rules {
  static constexpr std::string_view state_prefix = "state/";  ///< of the names of registered states in files
  static constexpr std::size_t longest = 4096;                ///< limit of loaders [bytes]
  static constexpr std::size_t longest_part = 43;             ///< of the suffix of a part: two numbers of 64 bits

  /// @param name   as a file has it   @param more   bytes that files may add before and after it
  /// @throws config_error   no loader would take it
  static void expect_written(std::string_view name, std::size_t more = 0)
  {
    if (name == "__metadata__") refuse(name, "the metadata of a safetensors file");
    if (!is_utf8(name))
      throw config_error{error_text{} << "chunkmem: a checkpoint cannot hold the name " << name
                                      << ", which is no UTF-8 (choose another name)"};
    if (name.size() + more > longest)
      throw config_error{error_text{} << "chunkmem: a checkpoint cannot hold a name of " << name.size() << " B, "
                                      << name.substr(0, 64) << "...: a loader takes " << longest
                                      << " B, and files may put " << more
                                      << " B before and after it (give a shorter name)"};
  }
  /// @throws config_error   in a checkpoint the name of this tensor would mean something else
  static void expect_tensor(std::string_view name, std::size_t more = 0)
  {
    expect_written(name, more);
    if (looks_divided(name)) refuse(name, "a part of a tensor");
    if (name.starts_with(state_prefix)) refuse(name, "a registered state");
  }
  /// @throws config_error   in a checkpoint the name of this registered state would mean something else
  static void expect_state(std::string_view name, std::size_t more = 0)
  {
    expect_written(name, more + state_prefix.size());
    if (looks_divided(name)) refuse(name, "a part of a tensor");
  }
  /// @throws config_error   in a checkpoint the name of a tensor in this list would mean something else
  static void expect_list(std::string_view name)
  {
    expect_written(name);
    if (name.starts_with(state_prefix) || name == state_prefix.substr(0, state_prefix.size() - 1))
      refuse(name, "registered states");
  }
  /// Checks a tensor against the lists of its model.
  /// @param for_each_list   `for_each_list(visit)` calls `visit(name)` for each list
  /// @throws config_error   in a checkpoint the tensor would have the name of an optimizer's list of another tensor
  template <class ForEachList>
  static void expect_beside(std::string_view name, ForEachList for_each_list, std::size_t more = 0)
  {
    const auto expect_unlike = [&](std::string_view begin) {
      if (begins_as(name, begin)) refuse(name, "an optimizer's list of a weight");
    };
    for_each_list([&](std::string_view list) {
      expect_written(name, more + list.size() + 1);
      expect_unlike(list);
      for_each_list([&](std::string_view longer) {  // "a" and "a/b": then "b/x" in the first is "x" in the second
        if (begins_as(longer, list)) expect_unlike(longer.substr(list.size() + 1));
      });
    });
  }

  /// The name looks like that of a part, "x[0:7]", or of a rank's own bytes, "x[rank 1 of 2]".
  [[nodiscard]] static constexpr bool looks_divided(std::string_view name) noexcept
  {
    const std::size_t open = name.rfind('[');
    if (open == name.npos || !name.ends_with(']')) return false;
    std::string_view rest = name.substr(open + 1, name.size() - open - 2);
    const bool is_of_rank = rest.starts_with("rank ");
    if (is_of_rank) rest.remove_prefix(5);
    return skip_digits(rest) && skip(rest, is_of_rank ? " of " : ":") && skip_digits(rest) && rest.empty();
  }

 private:
  [[noreturn]] static void refuse(std::string_view name, std::string_view what)
  {
    throw config_error{error_text{} << "chunkmem: in a checkpoint the name " << name << " would be that of " << what
                                    << " (choose another name)"};
  }
  [[nodiscard]] static constexpr bool is_utf8(std::string_view text) noexcept
  {
    while (!text.empty()) {
      const std::size_t length = detail::length_of_character(text);
      if (length == 0) return false;
      text.remove_prefix(length);
    }
    return true;
  }
  [[nodiscard]] static constexpr bool begins_as(std::string_view name, std::string_view list) noexcept
  {
    return name.size() > list.size() && name.starts_with(list) && name[list.size()] == '/';
  }
  [[nodiscard]] static constexpr bool skip(std::string_view& text, std::string_view word) noexcept
  {
    if (!text.starts_with(word)) return false;
    text.remove_prefix(word.size());
    return true;
  }
  [[nodiscard]] static constexpr bool skip_digits(std::string_view& text) noexcept
  {
    const std::size_t before = text.size();
    while (!text.empty() && text.front() >= '0' && text.front() <= '9') text.remove_prefix(1);
    return text.size() < before;
  }
};

/// The names of the tensors of one model, by their numbers. No two are equal.
///
///     tensor_names names;
///     names.set(0, "embedding");
///     names.name_of(1);  // "tensor.1"
///
/// Memory: the names, and 4 B for each. Cost of `set`: O(log n) comparisons, and 4 B moved for each later name in the
/// alphabet.
class tensor_names {
 public:
  /// Sets a name; an empty text removes it. Guarantee: strong. @throws config_error   another tensor has this name
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
  /// The name of a tensor, or empty.
  [[nodiscard]] std::string_view of(std::uint32_t tensor) const noexcept
  {
    return tensor < names_.size() ? std::string_view{names_[tensor]} : std::string_view{};
  }
  /// The name of a tensor in files, or "tensor.<number>".
  [[nodiscard]] std::string name_of(std::uint32_t tensor) const
  {
    return of(tensor).empty() ? "tensor." + std::to_string(tensor) : std::string{of(tensor)};
  }
  /// Checks that no tensor has the default name of another one. @param counts   `counts(tensor)`: the tensor of that
  /// number has a place in files @throws config_error   a tensor has   Cost: O(log n), and O(1) for each name that
  /// begins with "tensor."
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
