// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {
namespace backend {

/// Mistakes of a caller that every stream backend refuses in the same words. Cost: one or two compares each.

/// @throws usage_error   `stream` is no agent of a backend with `agents` of them
constexpr void require_agent(agent stream, std::size_t agents)
{
  if (index_of(stream) < agents) [[likely]]
    return;
  throw usage_error{error_text{} << "chunkmem: no such agent: index " << index_of(stream) << ", the backend has "
                                 << agents << " (use one of the built-in agents or one that adopt() gave)"};
}

/// @throws usage_error   nothing to write to, or to read from, where bytes are to move
constexpr void require_places(const std::byte* to, const std::byte* from, bytes size)
{
  if (size == bytes{} || (to != nullptr && from != nullptr)) [[likely]]
    return;
  throw usage_error{error_text{} << "chunkmem: copy or fill at a null address: " << size.count()
                                 << " B (pass memory that allocate() gave)"};
}

/// A wait for what was never recorded could close a cycle of waits, and then nobody would ever wake up.
/// @throws usage_error   `point` lies after everything that its source was `given`
constexpr void require_recorded(event point, std::uint64_t given)
{
  if (point.value <= given) [[likely]]
    return;
  throw usage_error{error_text{} << "chunkmem: wait for an event that was never recorded: value " << point.value
                                 << " of agent " << index_of(point.source) << ", the last possible is " << given
                                 << " (record the event first, on this backend)"};
}

/// @throws usage_error   `max_agents` are in use
constexpr void require_room_for_agent(std::size_t agents)
{
  if (agents < max_agents) [[likely]]
    return;
  throw usage_error{error_text{} << "chunkmem: no agent is left to adopt: " << agents << " of " << max_agents
                                 << " are in use (share a stream between its users)"};
}

}  // namespace backend
}  // namespace chunkmem::inline v0
