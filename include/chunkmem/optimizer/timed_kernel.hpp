// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/tensor/access.hpp>

#include <concepts>
#include <cstdint>

namespace chunkmem::inline v0 {

/// An optimizer kernel that knows how long its work takes: `step` lets that time pass where there are no bytes to work
/// on.
///
/// Laws: both answer in nanoseconds, for one parameter of so many elements.
template <class Kernel>
concept timed_kernel = requires(Kernel kernel, at place, std::uint64_t elements) {
  {
    kernel.update_takes(place, elements)
  } -> std::same_as<std::uint64_t>;
  {
    kernel.measure_takes(place, elements)
  } -> std::same_as<std::uint64_t>;
};

namespace optimizer::detail {

[[nodiscard]] constexpr at place_of(at place) noexcept
{
  return place;
}
[[nodiscard]] constexpr at place_of(agent) noexcept
{
  return at::device;
}

/// Whoever works there is busy for so long.
template <class Backend>
void let_pass(Backend& backend, at, std::uint64_t nanoseconds)
{
  backend.advance(agent::host, nanoseconds);
}
template <class Backend>
void let_pass(Backend& backend, agent who, std::uint64_t nanoseconds)
{
  backend.advance(who, nanoseconds);
}

/// The calling thread wants what came out of that work.
template <class Backend>
void await_result(Backend&, at)
{
}
template <class Backend>
void await_result(Backend& backend, agent who)
{
  backend.wait(agent::host, backend.record(who));
}

}  // namespace optimizer::detail

}  // namespace chunkmem::inline v0
