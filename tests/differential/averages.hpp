// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "breakable.hpp"
#include "plan.hpp"

#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace differential {
namespace {  // each kind of manager has its own, since one is compiled with other headers

/// An optimizer that takes means of two numbers: its bits are the same in any order of operations. Even updates do one
/// more operation, so that the number of an update matters.
class averages {
 public:
  static constexpr std::string_view name = "averages";

  averages() = default;
  explicit averages(const plan& it)
  {
    for (const list_plan& list : it.lists)
      lists_[count_++] = list.is_master ? cm::master_list : cm::list_spec{list.name};
  }

  [[nodiscard]] std::span<const cm::list_spec> lists() const noexcept { return {lists_.data(), count_}; }
  void update(const cm::optimizer::update_spans& all, const cm::optimizer::step_settings& settings) const noexcept
  {
    for (std::size_t index = 0; index < all.parameter.size(); ++index) {
      float& parameter = all.parameter[index];
      float& momentum = all.lists[0][index];
      momentum = (momentum + all.gradient[index]) * 0.5F;
      if (!all.lists[1].empty()) all.lists[1][index] = (all.lists[1][index] + parameter) * 0.5F;
      parameter = (parameter + momentum) * 0.5F;
      if (settings.number % 2 == 0) parameter = (parameter + all.gradient[index]) * 0.5F;
    }
  }

  cm::optimizer::step_progress progress;

 private:
  std::array<cm::list_spec, 3> lists_{};
  std::size_t count_ = 0;
};

static_assert(cm::optimizer_kernel<averages>);

}  // namespace
}  // namespace differential
