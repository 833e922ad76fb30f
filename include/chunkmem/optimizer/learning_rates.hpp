// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/tensor/registration.hpp>

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace optimizer {

/// A larger learning rate may become infinite where an optimizer divides it, as Adam by 1 - beta1.
inline constexpr float largest_learning_rate = 0x1p100F;

/// An update can be made with it: from 0 to `largest_learning_rate`.
[[nodiscard]] constexpr bool is_learning_rate(float rate) noexcept
{
  return rate >= 0.0F && rate <= largest_learning_rate;
}

/// @throws usage_error   no update can be made with it
inline void check_learning_rate(float rate)
{
  if (is_learning_rate(rate)) [[likely]]
    return;
  error_text text;
  text << "chunkmem: a learning rate of " << rate;
  if (rate > largest_learning_rate && rate <= std::numeric_limits<float>::max())
    throw usage_error{text << " (give one of at most " << largest_learning_rate << ")"};
  throw usage_error{text << " (give a finite one, 0 or above)"};
}

/// Learning rates by group that survive a restart: `m.use(rates)` once, `{.group_rates = rates}` in each step.
///
/// Good where a trainer changes its rates by what it sees, as on a plateau; not needed where each rate follows from the
/// number of the step, such as a warm-up. Checkpoints hold the rates as "learning rates".
class learning_rates {
 public:
  /// @throws usage_error   there is none, or a rate is no number, infinite or negative
  explicit learning_rates(std::span<const float> by_group) : rates_(by_group.begin(), by_group.end())
  {
    expects(!rates_.empty(), "learning rates of no group: a step would take one rate for all (give each group one)");
    for (const float rate : rates_) check_learning_rate(rate);
  }
  learning_rates(std::initializer_list<float> by_group) : learning_rates{std::span{by_group.begin(), by_group.size()}}
  {
  }
  learning_rates(const learning_rates&) = delete;  // its manager knows where the rates are
  learning_rates& operator=(const learning_rates&) = delete;

  /// @throws usage_error   as above, or there is no such group; nothing was changed
  void set(group_id group, float rate)
  {
    expects(index_of(group) < rates_.size(),
            "a learning rate was set for a group that was not declared with the rates");
    check_learning_rate(rate);
    rates_[index_of(group)] = rate;
  }
  /// @throws usage_error   there is no such group
  [[nodiscard]] float of(group_id group) const
  {
    expects(index_of(group) < rates_.size(),
            "a learning rate was asked for of a group that was not declared with the rates");
    return rates_[index_of(group)];
  }
  operator std::span<const float>() const noexcept { return rates_; }

  template <class Visit>
  void for_each_state(Visit visit)
  {
    visit(restart_state{"learning rates", std::as_writable_bytes(std::span{rates_}), &check});
  }

  registration registered;

 private:
  /// @throws config_error   a loaded rate is one that no step takes
  static void check(std::span<const std::byte> loaded)
  {
    for (std::size_t index = 0; index + sizeof(float) <= loaded.size(); index += sizeof(float)) {
      float rate = 0.0F;
      std::memcpy(&rate, loaded.data() + index, sizeof rate);
      if (!is_learning_rate(rate))
        throw config_error{error_text{} << "chunkmem: a checkpoint with a learning rate of " << rate
                                        << " (the file was not made by a training: load another generation)"};
    }
  }

  std::vector<float> rates_;
};

static_assert(registrable<learning_rates>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
