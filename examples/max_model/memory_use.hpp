// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace max_model {

using chunkmem::bytes;

/// The kinds of data that take bytes.
enum class taker : std::uint8_t {
  values,       ///< 16-bit weights, or gradients in their place
  gradients,    ///< 16-bit gradients that have bytes of their own
  states,       ///< master weights and moments
  buffers,      ///< gathered chunks, buckets, staging
  activations,  ///< at their peak
  program,      ///< context, process, tensors that the strategy does not manage
  set_aside,    ///< reserves of the strategy's rules
};
inline constexpr std::size_t taker_count = 7;

[[nodiscard]] constexpr std::string_view name_of(taker who) noexcept
{
  constexpr std::string_view names[taker_count] = {"values",      "gradients", "states",   "buffers",
                                                   "activations", "program",   "set aside"};
  return names[static_cast<std::size_t>(who)];
}

/// One rank's device, or its share of the host.
class tier_use {
 public:
  constexpr tier_use() = default;
  explicit constexpr tier_use(bytes capacity) : capacity_{capacity} {}

  constexpr void take(taker who, bytes size) { of_[static_cast<std::size_t>(who)] += size; }

  [[nodiscard]] constexpr bytes capacity() const noexcept { return capacity_; }
  [[nodiscard]] constexpr bytes of(taker who) const noexcept { return of_[static_cast<std::size_t>(who)]; }
  [[nodiscard]] constexpr bytes taken() const
  {
    bytes sum;
    for (const bytes it : of_) sum += it;
    return sum;
  }
  [[nodiscard]] constexpr bytes room() const { return taken() < capacity_ ? capacity_ - taken() : bytes{}; }
  [[nodiscard]] constexpr bytes missing() const { return taken() > capacity_ ? taken() - capacity_ : bytes{}; }

 private:
  bytes capacity_;
  std::array<bytes, taker_count> of_{};
};

/// The bytes of a training on one rank, each tier at its peak.
struct memory_use {
  tier_use device;
  tier_use host;
  std::uint64_t chunk = 0;   ///< elements of a chunk; 0: the strategy has none
  std::string_view refusal;  ///< why no number of bytes is enough; else empty

  [[nodiscard]] constexpr bool fits() const
  {
    return refusal.empty() && device.missing() == bytes{} && host.missing() == bytes{};
  }
  [[nodiscard]] constexpr bytes missing() const { return device.missing() + host.missing(); }
  [[nodiscard]] constexpr bytes room() const { return device.room() + host.room(); }

  /// Places model data where there is room: values on the device first, then states; the host takes the rest.
  constexpr void spread(bytes values, bytes states)
  {
    const bytes near_values = std::min(values, device.room());
    device.take(taker::values, near_values);
    host.take(taker::values, values - near_values);
    const bytes near_states = std::min(states, device.room());
    device.take(taker::states, near_states);
    host.take(taker::states, states - near_states);
  }
};

/// `size` times a part from 0 to 1, rounded down.
[[nodiscard]] inline bytes part_of(bytes size, double part)
{
  return bytes{static_cast<std::uint64_t>(static_cast<double>(size.count()) * part)};
}

/// `size` divided by `ranks`, rounded up.
[[nodiscard]] constexpr bytes share_of(bytes size, std::uint64_t ranks) noexcept
{
  return bytes{(size.count() + ranks - 1) / ranks};
}

}  // namespace max_model
