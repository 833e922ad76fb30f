#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gpt {

/// FNV-1a, 64 bits (Fowler, Noll, Vo): tells two runs or two texts apart, no protection against intent.
class fnv1a {
 public:
  void add(std::span<const std::byte> data) noexcept
  {
    for (const std::byte each : data) value_ = (value_ ^ static_cast<std::uint64_t>(each)) * 0x100000001b3u;
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace gpt
