// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/optimizer/device_body.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Runs bodies in a loop on the host: for backends whose device is memory of the host, and for tests.
///
/// A launcher is what `device_step` starts its bodies with: `launcher(backend, who, body)` enqueues.
class loop_launcher {
 public:
  /// Gives the body to an agent, as a callable without arguments.
  /// @throws device_error   the backend takes nothing; nothing was enqueued
  template <enqueues_work Backend, device_body Body>
  void operator()(Backend& backend, agent who, const Body& body) const
  {
    if (body.count() != 0) backend.launch(who, [body]() noexcept { run(body); });
  }

  /// Runs the body now, on the calling thread.
  template <device_body Body>
  static void run(const Body& body) noexcept
  {
    const float_environment standard;
    if constexpr (element_body<Body>)
      run_elements(body);
    else if constexpr (lane_body<Body>)
      run_lanes(body);
    else
      run_in_order(body);
  }

 private:
  template <class Body>
  [[gnu::noinline]] static void run_elements(const Body& body) noexcept
  {
    const auto& prepared = body.prepared();
    for (std::uint64_t index = 0; index < body.count(); ++index) prepared(index);
  }

  template <class Body>
  [[gnu::noinline]] static void run_lanes(const Body& body) noexcept
  {
    for (std::uint64_t block = 0; block < body.count(); ++block) {
      typename Body::sums_type sums[body_lanes];
      for (std::uint32_t at = 0; at < body_lanes; ++at) sums[at] = body.lane(block, at);
      for (std::uint32_t half = body_lanes / 2; half > 0; half /= 2)
        for (std::uint32_t at = 0; at < half; ++at) body.combine(sums[at], sums[at + half]);
      body.store(block, sums[0]);
    }
  }

  template <class Body>
  [[gnu::noinline]] static void run_in_order(const Body& body) noexcept
  {
    for (std::uint64_t row = 0; row < body.count(); ++row) {
      typename Body::total_type total{};
      for (std::uint64_t at = 0; at < body.length(row); ++at) total.add(body.load(row, at));
      body.store(row, total);
    }
  }
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
