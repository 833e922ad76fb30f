// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/manager.hpp>
#include <support/chosen_gradient.hpp>
#include <support/every_policy.hpp>

#include <type_traits>

namespace support {

/// Policies of a run. Policies that are not given are the defaults of `manager`.
struct policies {
  every_eviction eviction{"belady"};
  every_transfer transfer{"lookahead"};
  every_layout layout{"size_class_layout"};
  every_placement placement{"optimizer_on_host"};
  chosen_gradient gradient{};
};

/// One type of manager for trainings that differ in their policies: a type costs some 500 functions for each trainer.
///
/// tests/equality/host_arena_test.cpp shows that policies named by a type make the same decisions. Where the calling
/// thread cannot read the device, states stay on the host until a test gives it another share.
/// @tparam Transfer   every_transfer, which always makes plans, or no_prefetch, which makes none
template <class Backend, class Transfer = every_transfer>
using any_manager = chunkmem::manager<
    Backend, every_eviction, chosen_gradient, Transfer, every_layout,
    std::conditional_t<Backend::host_addressable, every_placement, chunkmem::placement::update_share>>;

namespace detail {

template <class Wanted, class Given>
[[nodiscard]] Wanted policy_of_type(const Given& it)
{
  if constexpr (std::is_same_v<Wanted, Given>)
    return it;
  else
    return Wanted{};
}

template <class Manager>
struct maker;
template <class Backend, class Rules, class Layout, class Eviction, class Placement, class Gradient, class Transfer,
          class... Others>
struct maker<chunkmem::basic_manager<Backend, Rules, Layout, Eviction, Placement, Gradient, Transfer, Others...>> {
  [[nodiscard]] static auto make(Backend& memory, const chunkmem::manager_options& options, const policies& it)
  {
    return chunkmem::basic_manager<Backend, Rules, Layout, Eviction, Placement, Gradient, Transfer, Others...>{
        memory,
        options,
        policy_of_type<Layout>(it.layout),
        policy_of_type<Eviction>(it.eviction),
        policy_of_type<Placement>(it.placement),
        policy_of_type<Gradient>(it.gradient),
        policy_of_type<Transfer>(it.transfer)};
  }
};

}  // namespace detail

/// A manager with the policies of `it`, as far as its type lets them be chosen at run time.
template <class Manager, class Backend>
[[nodiscard]] Manager make_manager(Backend& memory, const chunkmem::manager_options& options, const policies& it)
{
  return detail::maker<Manager>::make(memory, options, it);
}

}  // namespace support
