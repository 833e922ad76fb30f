// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/gradient_policies.hpp>

#include <string_view>

namespace support {

/// `in_place` or `separate`, chosen when the program runs, so that a matrix of tests needs one type of manager.
class chosen_gradient {
 public:
  using policy_kind = chunkmem::gradient_kind;
  static constexpr std::string_view name = "chosen_gradient";

  chosen_gradient() = default;
  explicit chosen_gradient(bool in_place, bool wide = false) noexcept : in_place_{in_place}, wide_{wide && !in_place} {}

  [[nodiscard]] chunkmem::dtype type_for(chunkmem::dtype parameter) const noexcept
  {
    return wide_ && chunkmem::size_of(parameter) == 2 ? chunkmem::dtype::float32 : parameter;
  }
  [[nodiscard]] bool takes_slot() const noexcept { return in_place_; }

 private:
  bool in_place_ = false;
  bool wide_ = false;
};

static_assert(chunkmem::gradient_policy<chosen_gradient>);

}  // namespace support
