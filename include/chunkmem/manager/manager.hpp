#pragma once

#include <chunkmem/chunk/append_layout.hpp>
#include <chunkmem/eviction/belady.hpp>
#include <chunkmem/manager/basic_manager.hpp>
#include <chunkmem/placement/host_first.hpp>
#include <chunkmem/tensor/separate_gradient.hpp>
#include <chunkmem/tensor/training_rules.hpp>
#include <chunkmem/transfer/lookahead.hpp>

namespace chunkmem::inline v0 {

namespace detail {

using manager_kinds = accepts<rules_kind, layout_kind, eviction_kind, placement_kind, gradient_kind, transfer_kind,
                              mover_kind, sink_kind>;

/// With whatever else the list names: who takes it checks it.
template <class Backend, class... Policies>
using manager_among =
    basic_manager<Backend, pick_policy<rules_kind, training_rules, Policies...>, pick_policy<layout_kind, append_layout, Policies...>,
                  pick_policy<eviction_kind, eviction::belady, Policies...>,
                  pick_policy<placement_kind, placement::host_first, Policies...>,
                  pick_policy<gradient_kind, gradient::separate, Policies...>,
                  pick_policy<transfer_kind, transfer::lookahead, Policies...>, pick_policy<mover_kind, copy_mover, Policies...>,
                  pick_policy<sink_kind, trace::null_sink, Policies...>>;

template <class Backend, class... Policies>
  requires(manager_kinds::check<Policies...>())
using manager_for = manager_among<Backend, Policies...>;

}  // namespace detail

/// A manager on `Backend`, with these policies in any order and the defaults for the rest.
///
/// The order never makes a new type. Two policies of a kind, or one of an unknown kind, is one readable error.
template <stream_backend Backend, class... Policies>
using manager = detail::manager_for<Backend, Policies...>;

/// A manager that is given its policies as values: their types are its policies.
template <stream_backend Backend, class... Policies>
[[nodiscard]] manager<Backend, Policies...> make_manager(Backend& backend, const manager_options& options, Policies... policies)
{
  return manager<Backend, Policies...>{backend, options, policies...};
}

}  // namespace chunkmem::inline v0
