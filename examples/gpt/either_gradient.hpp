// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"

#include <chunkmem/tensor/gradient_policies.hpp>

namespace gpt {

/// A gradient policy that the command line chooses: one manager type instead of two.
class either_gradient {
 public:
  using policy_kind = chunkmem::gradient_kind;
  static constexpr std::string_view name = "either_gradient";

  constexpr either_gradient() noexcept = default;
  explicit constexpr either_gradient(gradient_choice choice) noexcept : in_place_{choice == gradient_choice::in_place}
  {
  }

  [[nodiscard]] constexpr chunkmem::dtype type_for(chunkmem::dtype parameter) const noexcept { return parameter; }
  [[nodiscard]] constexpr bool takes_slot() const noexcept { return in_place_; }

 private:
  bool in_place_ = false;
};

static_assert(chunkmem::gradient_policy<either_gradient>);

}  // namespace gpt
