// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>

#include <type_traits>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

/// Takes whatever arithmetic a kernel visits it with.
struct arithmetic_visitor {
  template <class Work>
  void operator()(std::type_identity<Work>) const noexcept
  {
  }
};

}  // namespace detail

}  // namespace optimizer

/// An optimizer kernel whose update a device can do as well, with the same bits.
///
/// Laws: `device_factors` is what all elements of one update share, trivially copyable, made from (options of a group,
/// settings) in host and device code alike; `with_arithmetic(group, visit)` calls `visit(std::type_identity<Work>{})`
/// once, where `Work{factors}.one(parameter, gradient, states...)` updates one element like `update`, `Work::states` is
/// the number of lists of states, and both depend on the group's options alone.
template <class Kernel>
concept device_optimizer_kernel =
    optimizer_kernel<Kernel> && std::is_trivially_copyable_v<typename Kernel::device_factors> &&
    requires(const Kernel& kernel, group_id group, optimizer::detail::arithmetic_visitor visit) {
      kernel.options(group);
      requires std::is_trivially_copyable_v<std::remove_cvref_t<decltype(kernel.options(group))>>;
      kernel.with_arithmetic(group, visit);
    };

}  // namespace chunkmem::inline v0
