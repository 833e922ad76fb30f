// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/policy.hpp>
#include <chunkmem/trace/trace_event.hpp>

namespace chunkmem::inline v0 {

/// Takes each event when it happens.
///
/// Laws: `record` never throws and never calls the manager back. It may be called for every copy, so keep it short.
template <class Sink>
concept trace_sink = names_itself<Sink> && std::same_as<typename Sink::policy_kind, sink_kind> &&
                     requires(Sink sink, const trace_event& event) {
                       {
                         sink.record(event)
                       } noexcept;
                     };

namespace trace {

/// The default: keeps nothing and compiles to nothing.
///
///     manager<backend::host_arena, trace::null_sink> m{memory};  // the same type as manager<backend::host_arena>
struct null_sink {
  using policy_kind = sink_kind;
  static constexpr std::string_view name = "null_sink";
  void record(const trace_event&) noexcept {}
};

static_assert(trace_sink<null_sink>);

}  // namespace trace

}  // namespace chunkmem::inline v0
