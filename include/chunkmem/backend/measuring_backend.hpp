// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/backend/wait_cause.hpp>

#include <concepts>

namespace chunkmem::inline v0 {

/// A stream backend that knows which waits blocked, and for how long. Only reports ask it.
///
/// Laws:
/// 1. `wait(stream, e, why)` orders as `wait(stream, e)`. The event's being reached already changes nothing but the
///    totals.
/// 2. `waited(why)` has the waits of that cause that blocked `stream`: the calling thread, or the stream on its thread
///    or clock. `waited(wait_cause::throttle)` has the enqueues that blocked. Totals never fall. Without it a manager
///    measures the calling thread's waits around `wait`, and counts each of them; see hazard_tracker.
template <class Backend>
concept measuring_backend = stream_backend<Backend> &&
                            requires(Backend& backend, const Backend& view, agent stream, event point, wait_cause why) {
                              backend.wait(stream, point, why);
                              {
                                view.waited(why)
                              } -> std::same_as<wait_total>;
                            };

}  // namespace chunkmem::inline v0
