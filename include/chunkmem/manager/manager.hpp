// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checks/check_policy.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/basic_manager.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>
#include <chunkmem/transfer/transfers.hpp>

namespace chunkmem::inline v0 {

namespace detail {

using manager_kinds = accepts<rules_kind, layout_kind, eviction_kind, placement_kind, gradient_kind, transfer_kind,
                              mover_kind, sink_kind, checks_kind>;

/// Other types in the list are ignored here: the class that uses them checks them.
template <class Backend, class... Policies>
using manager_among = basic_manager<
    Backend, pick_policy<rules_kind, training_rules, Policies...>,
    pick_policy<layout_kind, size_class_layout, Policies...>, pick_policy<eviction_kind, eviction::belady, Policies...>,
    pick_policy<placement_kind, placement::optimizer_on_host, Policies...>,
    pick_policy<gradient_kind, gradient::separate, Policies...>,
    pick_policy<transfer_kind, transfer::lookahead, Policies...>, pick_policy<mover_kind, copy_mover, Policies...>,
    pick_policy<sink_kind, trace::null_sink, Policies...>, pick_policy<checks_kind, checks::none, Policies...>>;

/// So is a first argument that is no backend.
template <class Backend>
consteval bool is_backend()
{
  static_assert(!names_itself<Backend>,
                "chunkmem: a policy stands where the backend belongs: name the backend first, as in "
                "manager<backend::host_arena, eviction::lru>");
  static_assert(names_itself<Backend> || stream_backend<Backend>,
                "chunkmem: the first argument of manager is no backend: name one, such as backend::host_arena, or add "
                "what stream_backend asks for (docs/policies/backend.md)");
  return stream_backend<Backend>;
}

/// A policy without a required member is one sentence too, which lists the members of its family.
template <class Backend, class... Policies>
consteval bool has_hooks()
{
  static_assert(chunk_layout<pick_policy<layout_kind, size_class_layout, Policies...>>,
                "chunkmem: a layout lacks something: reset(bytes), place(bytes) -> chunk_place, copies "
                "(docs/policies/layout.md)");
  static_assert(eviction_policy<pick_policy<eviction_kind, eviction::belady, Policies...>>,
                "chunkmem: an eviction policy lacks a hook, or has it with another signature: reset(std::uint32_t), "
                "enter(candidate) noexcept, "
                "leave(candidate) noexcept, victim(access_index) noexcept -> chunk_id, on_profile(access_record) "
                "(docs/policies/eviction.md)");
  static_assert(
      placement_policy<pick_policy<placement_kind, placement::optimizer_on_host, Policies...>>,
      "chunkmem: a placement lacks its hook: preferred_tier(role, bytes) const -> tier (docs/policies/placement.md)");
  static_assert(gradient_policy<pick_policy<gradient_kind, gradient::separate, Policies...>>,
                "chunkmem: a gradient policy lacks a hook: type_for(dtype) const -> dtype, takes_slot() const -> bool "
                "(docs/policies/gradient.md)");
  static_assert(transfer_policy<pick_policy<transfer_kind, transfer::lookahead, Policies...>>,
                "chunkmem: a transfer policy lacks something: static plans, schedule(schedule_input, moves), copies "
                "(docs/policies/transfer.md)");
  static_assert(
      chunk_mover<pick_policy<mover_kind, copy_mover, Policies...>, Backend>,
      "chunkmem: a mover lacks a hook: bring and take(backend, to, from, bytes, agent) (docs/policies/mover.md)");
  static_assert(trace_sink<pick_policy<sink_kind, trace::null_sink, Policies...>>,
                "chunkmem: a sink lacks its hook: record(trace_event) noexcept (docs/policies/sink.md)");
  static_assert(check_policy<pick_policy<checks_kind, checks::none, Policies...>>,
                "chunkmem: a check policy lacks something: static is_on, and a part with the calls of "
                "checks::no_checks (docs/policies/checks.md)");
  return true;
}

template <class Backend, class... Policies>
  requires(is_backend<Backend>() && manager_kinds::check<Policies...>() && has_hooks<Backend, Policies...>())
using manager_for = manager_among<Backend, Policies...>;

}  // namespace detail

/// A manager on `Backend`, with these policies in any order and the defaults for the rest.
///
/// The order never makes a new type. Two policies of a kind, or one of an unknown kind, is one readable error.
/// @tparam Backend   a stream_backend
template <class Backend, class... Policies>
using manager = detail::manager_for<Backend, Policies...>;

}  // namespace chunkmem::inline v0
