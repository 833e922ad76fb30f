// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/call.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

/// @throws config_error   an option is not right: names the option, its value, and what to give instead
inline void expect_option(bool is_right, std::string_view what, float value, std::string_view instead)
{
  if (!is_right) throw config_error{error_text{} << "chunkmem: " << what << " is " << value << " (" << instead << ")"};
}

/// Options as a word.
[[nodiscard]] inline std::uint64_t word_of_options(std::initializer_list<float> numbers, bool choice) noexcept
{
  collective::fingerprint all;
  for (const float it : numbers) all.add(std::bit_cast<std::uint32_t>(it));
  all.add(choice ? 1 : 0);
  return all.value();
}

/// Options that all groups share, and those of the few groups that have their own.
template <class Options>
class group_options {
 public:
  explicit group_options(const Options& common) : common_{common} {}

  void set(group_id which, const Options& options)
  {
    for (entry& it : own_)
      if (it.which == which) return static_cast<void>(it.options = options);
    own_.push_back({which, options});
  }

  [[nodiscard]] const Options& common() const noexcept { return common_; }
  [[nodiscard]] const Options& of(group_id which) const noexcept
  {
    for (const entry& it : own_)
      if (it.which == which) return it.options;
    return common_;
  }

  /// All of them as a word: the same where each group has the same options, in whatever order they were set.
  /// @param word_of   `word_of(options)`
  template <class WordOf>
  [[nodiscard]] std::uint64_t word(WordOf word_of) const
  {
    const std::uint64_t common = word_of(common_);
    std::uint64_t all = common;
    for (const entry& it : own_) {
      collective::fingerprint own;
      own.add(index_of(it.which));
      own.add(word_of(it.options));
      if (word_of(it.options) != common) all += own.value();
    }
    return all;
  }

 private:
  struct entry {
    group_id which;
    Options options;
  };

  Options common_;
  std::vector<entry> own_;
};

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
