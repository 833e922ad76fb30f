// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// The name that a file of another program has for a tensor of the model. One `*` in both names stands for the same
/// characters, such as the number of a layer.
///
///     const file_name_rule gpt2{"h.*.attn.qkv", "transformer.h.*.attn.c_attn.weight", true};
struct file_name_rule {
  std::string tensor;  ///< in the model
  std::string in_file;
  bool is_transposed = false;  ///< the file has the two extents, and so the elements, in the other order
};

namespace detail {

/// Whether a name matches a pattern, in which each `*` stands for any characters.
[[nodiscard]] constexpr bool has_form(std::string_view name, std::string_view pattern) noexcept
{
  std::size_t at = 0, in = 0;                        // of the name, of the pattern
  std::size_t star = pattern.npos, behind_star = 0;  // of the pattern; of the name, where the star ends for now
  while (at < name.size()) {
    if (in < pattern.size() && pattern[in] == '*') {
      star = in++;
      behind_star = at;
    } else if (in < pattern.size() && pattern[in] == name[at]) {
      ++in, ++at;
    } else if (star != pattern.npos) {
      in = star + 1;
      at = ++behind_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', in) == pattern.npos;
}

/// @throws usage_error   a rule has two stars, or a star only in the file's name
inline void expect_rules(std::span<const file_name_rule> names)
{
  for (const file_name_rule& it : names) {
    const std::size_t star = it.tensor.find('*'), there = it.in_file.find('*');
    if (star != it.tensor.rfind('*') || there != it.in_file.rfind('*') || (star == it.tensor.npos && there != star))
      throw usage_error{error_text{} << "chunkmem: the rule of names " << it.tensor << " to " << it.in_file
                                     << " has two stars, or a star only in the file's name (give each name one)"};
  }
}

/// Where a file has a tensor of the model.
struct place_in_file {
  std::string name;
  bool is_transposed = false;
};
/// The place by the first rule that matches the tensor; without a rule, its own name.
[[nodiscard]] inline place_in_file place_of(std::string_view tensor, std::span<const file_name_rule> names)
{
  for (const file_name_rule& it : names) {
    const std::size_t star = it.tensor.find('*');
    if (star == it.tensor.npos ? tensor != it.tensor : !has_form(tensor, it.tensor)) continue;
    place_in_file found{it.in_file, it.is_transposed};
    if (star != it.tensor.npos)
      if (const std::size_t there = found.name.find('*'); there != found.name.npos)
        found.name.replace(there, 1, tensor.substr(star, tensor.size() + 1 - it.tensor.size()));
    return found;
  }
  return {std::string{tensor}, false};
}

}  // namespace detail

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
