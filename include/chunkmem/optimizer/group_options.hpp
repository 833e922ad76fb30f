// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/optimizer/setting.hpp>

#include <algorithm>
#include <cstddef>
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

/// Options that all groups share, and those of the few groups that have their own.
template <class Options>
class group_options {
 public:
  explicit group_options(const Options& common) : common_{common} {}

  void set(group_id which, const Options& options)
  {
    const auto place =
        std::ranges::lower_bound(own_, index_of(which), {}, [](const entry& it) { return index_of(it.which); });
    if (place != own_.end() && place->which == which)
      place->options = options;
    else
      own_.insert(place, {which, options});
  }

  [[nodiscard]] const Options& common() const noexcept { return common_; }
  [[nodiscard]] const Options& of(group_id which) const noexcept
  {
    for (const entry& it : own_)
      if (it.which == which) return it.options;
    return common_;
  }
  /// Calls `visit(setting)` for the common ones, and for those of each group that differ from them, in the order of
  /// groups: the same calls for options that mean the same. @param settings_of   `settings_of(options)`: a range
  template <class SettingsOf, class Visit>
  void for_each_setting(SettingsOf settings_of, Visit& visit) const
  {
    const auto common = settings_of(common_);
    for (const setting& it : common) visit(it);
    for (const entry& it : own_) {
      const auto own = settings_of(it.options);
      for (std::size_t index = 0; index < own.size(); ++index)
        if (own[index].word() != common[index].word()) visit(own[index].in(it.which));
    }
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
