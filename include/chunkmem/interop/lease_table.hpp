// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {
namespace interop {

/// Finds the lease of an address. Allocators get an address back, and a lease is an object.
///
///     lease_table table{m};
///     std::byte* const place = table.take(tier::device, 1_MiB, agent::compute);
///     table.give(place, 1_MiB);
///
/// The search begins with the last lease: containers and frameworks mostly give the last allocation back first. Room
/// for entries is kept. So a step that takes as much as the step before allocates nothing on the heap. Cost: O(1) in
/// the order of a stack, else O(live leases).
///
/// @threads   one caller per manager
template <class Manager>
class lease_table {
 public:
  using lease_type = decltype(std::declval<Manager&>().lease(tier::device, bytes{}, agent::host));

  explicit lease_table(Manager& m) noexcept : m_{&m} {}

  /// @return   its address; null in a rehearsal, where nothing has bytes
  /// @throws out_of_memory, usage_error   as lease
  [[nodiscard]] std::byte* take(tier where, bytes size, agent stream)
  {
    const std::size_t before = leases_.size();
    leases_.emplace_back();  // first, so that nothing can fail once there is a lease
    try {
      leases_.back() = {m_->lease(where, size, stream), size, stream};
    } catch (...) {
      leases_.resize(before);
      throw;
    }
    return leases_.back().held.data();
  }

  /// Ends the lease at an address, after `before_end(its agent)`. @return   there was such a lease
  template <class BeforeEnd>
  bool give(const void* address, bytes size, BeforeEnd before_end)
  {
    for (std::size_t index = leases_.size(); index-- > 0;) {
      entry& it = leases_[index];
      if (it.size != size || !it.held.is_live() || it.held.data() != address) continue;
      before_end(it.stream);
      leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(index));
      return true;
    }
    return false;
  }
  bool give(const void* address, bytes size)
  {
    return give(address, size, [](agent) {});
  }

  [[nodiscard]] std::size_t live() const noexcept { return leases_.size(); }
  [[nodiscard]] Manager& manager() const noexcept { return *m_; }

 private:
  struct entry {
    lease_type held;
    bytes size;
    agent stream = agent::host;
  };

  Manager* m_;
  std::vector<entry> leases_;
};

}  // namespace interop
}  // namespace chunkmem::inline v0
