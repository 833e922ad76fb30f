#pragma once

#include <chunkmem/core/ids.hpp>

#include <vector>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

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
