// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace support {

/// Random numbers that are the same on every machine. A test prints the seed when it fails.
class dice {
 public:
  explicit dice(std::uint64_t seed) : engine_{seed} {}

  /// 0 to `end` - 1.
  std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(engine_() % end); }
  /// `first` to `last`.
  std::uint32_t between(std::uint32_t first, std::uint32_t last) { return first + below(last - first + 1); }
  bool one_in(std::uint32_t chances) { return below(chances) == 0; }
  template <class Value>
  Value& pick(std::vector<Value>& from)
  {
    return from[below(static_cast<std::uint32_t>(from.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace support
