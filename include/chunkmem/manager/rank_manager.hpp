// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

namespace chunkmem::inline v0 {

/// The manager of this rank's bytes: of a sharded_model the manager of its shares, of a manager itself.
///
///     rank_manager(model).for_each_tensor(visit);   // buffers, activations and shares of this rank
template <class Model>
[[nodiscard]] auto& rank_manager(Model& model) noexcept
{
  if constexpr (requires { model.shares(); })
    return model.shares();
  else
    return model;
}

}  // namespace chunkmem::inline v0
