// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/sequence.hpp>
#include <chunkmem/core/sort_records.hpp>
#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// In which order an optimizer step goes through the parameters: that of declaration until another one is arranged,
/// which then stays until `reset`, so that a step that is tried again finds its place.
///
///     update_order order;
///     order.reset(completed.size());
///     order.arrange([&](std::uint32_t parameter) { return completed[parameter]; });
///     for (const std::uint32_t parameter : order.all()) std::cout << parameter << '\n';
class update_order {
 public:
  /// From here on nothing asks for memory.
  void reset(std::size_t parameters)
  {
    keys_.resize(parameters);
    order_.resize(parameters);
    reset();
  }
  void reset() noexcept
  {
    for (std::size_t index = 0; index < order_.size(); ++index) order_[index] = static_cast<std::uint32_t>(index);
  }

  /// Parameters by their number, the order of declaration.
  [[nodiscard]] std::span<const std::uint32_t> all() const noexcept { return order_; }

  /// The lower `key(parameter)` comes first, equal ones in the order of declaration. O(parameters log parameters).
  template <class Key>
  void arrange(Key key)
  {
    for (std::uint32_t index = 0; index < keys_.size(); ++index) keys_[index] = key(index);
    sort_records(std::span{order_},
                 [&](std::uint32_t a, std::uint32_t b) { return keys_[a] != keys_[b] ? keys_[a] < keys_[b] : a < b; });
  }

 private:
  sequence<std::uint32_t> order_;
  sequence<std::uint64_t> keys_;
};

}  // namespace chunkmem::inline v0
