// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/placement/memory_plan.hpp>
#include <chunkmem/tensor/tensor.hpp>
#include <chunkmem/trace/trace_sink.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// A copy over a link, in virtual time.
///
///     for (const timed_copy& it : seen.copies) std::cout << it.bytes << " B in " << it.end - it.begin << " ns\n";
struct timed_copy {
  std::uint32_t chunk = 0;
  tier to = tier::device;
  std::uint64_t bytes = 0;
  std::uint64_t begin = 0;  ///< [ns]
  std::uint64_t end = 0;
  std::uint32_t access_index = 0;  ///< of the record, before which it was enqueued
};

/// A chunk that gave up its frames on the device, in virtual time: when all its earlier uses are done.
///
///     for (const timed_departure& it : seen.departures) std::cout << it.chunk << " left at " << it.time << " ns\n";
struct timed_departure {
  std::uint32_t chunk = 0;
  std::uint64_t time = 0;  ///< [ns]
};

/// Work of the device, the collectives or the host, in virtual time, and the bytes on the device when it was enqueued.
///
///     for (const timed_work& it : seen.computing) std::cout << it.group << ": " << it.nanoseconds << " ns\n";
struct timed_work {
  std::uint32_t stage = 0;  ///< parameter_groups::stage
  std::uint32_t group = 0;
  std::uint64_t begin = 0;  ///< [ns]
  std::uint64_t nanoseconds = 0;
  std::uint64_t device_bytes = 0;  ///< chunks and leases
  std::uint64_t leased_bytes = 0;  ///< activations and gathered weights
  std::uint64_t host_bytes = 0;
};

/// An update, or the norm of a gradient, in virtual time.
///
///     for (const timed_update& it : seen.updating) std::cout << it.begin << ": " << it.nanoseconds << " ns\n";
struct timed_update {
  memory_location place = memory_location::host;
  std::uint32_t access_index = 0;  ///< of the record, of its first access
  std::uint32_t end = 0;           ///< access after its last access
  std::uint64_t begin = 0;         ///< [ns]
  std::uint64_t nanoseconds = 0;
};

/// Gives the access index of a manager.
///
///     using manager_type = manager<backend::simulated>;
///     const auto ask = [](const void* who) { return static_cast<const manager_type*>(who)->access_index(); };
///     const access_index_source indices{&m, ask};
struct access_index_source {
  const void* who = nullptr;
  std::uint32_t (*ask)(const void*) = nullptr;

  [[nodiscard]] std::uint32_t now() const { return ask == nullptr ? 0 : ask(who); }
};

/// The events of one iteration, for pictures.
///
///     for (const timed_copy& it : forecast.timeline.copies) std::cout << it.begin << ".." << it.end << " ns\n";
struct training_timeline {
  std::uint64_t begin = 0;  ///< of the iteration: when the caller began to enqueue it [ns]
  std::uint64_t end = 0;
  std::uint64_t backward = 0;  ///< when the forward pass is computed and the backward pass begins [ns]
  std::vector<timed_copy> copies;
  std::vector<timed_departure> departures;
  std::vector<timed_work> computing;
  std::vector<timed_work> gathering;   ///< and scattering
  device_use at_peak;                  ///< at the peak of leases
  std::vector<timed_update> updating;  ///< and norms
};

/// A trace sink that knows when copies really begin and end. On virtual clocks both times are known once a copy is
/// enqueued.
///
///     std::vector<timed_copy> copies;
///     manager<backend::simulated, timeline_sink> m{clocks, {}, timeline_sink{clocks, costs, indices, copies}};
class timeline_sink {
 public:
  using policy_kind = sink_kind;
  static constexpr std::string_view name = "timeline_sink";

  timeline_sink() = default;
  /// All arguments outlive the manager.
  timeline_sink(const backend::simulated& clocks, const backend::cost_table& costs,
                const access_index_source& access_indices, std::vector<timed_copy>& copies,
                std::vector<timed_departure>* departures = nullptr) noexcept
      : clocks_{&clocks}, costs_{&costs}, access_indices_{&access_indices}, copies_{&copies}, departures_{departures}
  {
  }

  void record(const trace_event& event) noexcept
  {
    if ((event.what == trace_event_kind::evict || event.what == trace_event_kind::discard) && departures_ != nullptr)
      return depart(event);
    if (copies_ == nullptr || (event.what != trace_event_kind::load && event.what != trace_event_kind::write_back))
      return;
    const bool up = event.what == trace_event_kind::load;
    const std::uint64_t end = clocks_->clock(up ? agent::to_device : agent::to_host);
    const std::uint64_t took = (up ? costs_->to_device : costs_->to_host).nanoseconds_for(bytes{event.bytes});
    try {
      copies_->push_back({index_of(event.chunk), event.to, event.bytes, end - took, end, access_indices_->now()});
    } catch (...) {  // a gap in a picture is better than no training
    }
  }

 private:
  void depart(const trace_event& event) noexcept
  {
    try {
      departures_->push_back({index_of(event.chunk), clocks_->clock(agent::compute)});
    } catch (...) {
    }
  }

  const backend::simulated* clocks_ = nullptr;
  const backend::cost_table* costs_ = nullptr;
  const access_index_source* access_indices_ = nullptr;
  std::vector<timed_copy>* copies_ = nullptr;
  std::vector<timed_departure>* departures_ = nullptr;
};

static_assert(trace_sink<timeline_sink>);

}  // namespace planner

}  // namespace chunkmem::inline v0
