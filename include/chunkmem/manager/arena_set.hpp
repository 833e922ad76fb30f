// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/device_health.hpp>

#include <cstddef>
#include <utility>

namespace chunkmem::inline v0 {

/// The arenas of a manager: one allocation in each tier of the backend, made once and given back at the end.
///
/// `allocate()` takes the whole capacity of each tier. `release()`, which the destructor calls, waits for all agents
/// before memory goes back, because a copy could still write there.
/// Cost: one allocation for each tier that has a capacity.
template <stream_backend Backend>
class arena_set {
 public:
  /// Both outlive this. @param health   hears of every error of the backend
  arena_set(Backend& backend, device_health& health) noexcept : backend_{&backend}, health_{&health} {}
  arena_set(const arena_set&) = delete;
  ~arena_set() { release(); }

  [[nodiscard]] per_tier<bytes> capacities() const
  {
    per_tier<bytes> result;
    for (const tier where : all_tiers) result[where] = backend_->capacity(where);
    return result;
  }

  /// Guarantee: strong. @throws out_of_memory, device_error   a tier could not be allocated
  void allocate()
  {
    const per_tier<bytes> size = capacities();
    try {
      for (const tier where : all_tiers)
        if (size[where] > bytes{})
          begin_[where] = health_->starting([&] { return backend_->allocate(where, size[where]); });
    } catch (...) {
      release();
      throw;
    }
  }
  /// Begins of the arenas; null in a tier that was not allocated.
  [[nodiscard]] const per_tier<std::byte*>& begins() const noexcept { return begin_; }

  /// All agents are done with what they were given. An error of an agent is reported elsewhere: by its next use.
  void wait_for_agents() noexcept
  {
    for (unsigned who = 1; who < backend_->agents(); ++who) wait_for(static_cast<agent>(who));
  }
  /// The same of the agents that every backend has. Those that were adopted may wait for other ranks: a link does,
  /// whose receive began early.
  void wait_for_own_agents() noexcept
  {
    for (unsigned who = 1; who < built_in_agents; ++who) wait_for(static_cast<agent>(who));
  }
  /// The same of one agent.
  void wait_for(agent who) noexcept
  {
    if (who == agent::host) return;
    try {
      backend_->wait(agent::host, backend_->record(who));
    } catch (...) {  // a device that is going away cannot be waited for; its memory goes with it
    }
  }

  /// Gives back what was allocated, after all agents are done.
  void release() noexcept
  {
    bool any = false;
    for (const tier where : all_tiers) any = any || begin_[where] != nullptr;
    if (!any) return;
    wait_for_agents();
    for (const tier where : all_tiers)
      if (std::byte* const arena = std::exchange(begin_[where], nullptr); arena != nullptr)
        backend_->release(where, arena);
  }

 private:
  Backend* backend_;
  device_health* health_;
  per_tier<std::byte*> begin_;
};

}  // namespace chunkmem::inline v0
