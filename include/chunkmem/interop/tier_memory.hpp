// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/interop/lease_table.hpp>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <vector>

namespace chunkmem::inline v0 {
namespace interop {

/// Memory of a tier for the containers of the standard library: `std::pmr::vector` and others within a manager's
/// budget.
///
/// Every allocation is a lease. It is counted, and makes chunks leave where there is no other room. It is in the
/// record, so a step that allocates alike each time is planned with it. Good for workspaces and batches of a step. Poor
/// for many small objects, since a lease takes at least 256 bytes: put a `std::pmr::monotonic_buffer_resource` on top
/// for them. Give vectors their room at once, so that the steps of their growth are no leases. In a rehearsal a lease
/// is counted and has no bytes: containers then write to bytes of `std::pmr::new_delete_resource`. The end of this
/// resource ends all leases that are still out. Source: memory_resource of C++17. Cost: that of a lease, no heap once
/// steps repeat.
///
/// Use:
///
///     interop::tier_memory device{m, tier::device};
///     std::pmr::vector<float> workspace(2048, &device);   // a lease of 8 KiB
///
/// @threads   one caller per manager
template <class Manager>
class tier_memory final : public std::pmr::memory_resource {
 public:
  /// @param m   outlives this   @param where   a tier that the calling thread can read and write
  /// @throws config_error       it cannot
  explicit tier_memory(Manager& m, tier where = tier::host) : leases_{m}, where_{where}
  {
    if (where != tier::host && !(where == tier::device && Manager::engine_type::host_addressable))
      throw config_error{error_text{} << "chunkmem: containers of the standard library cannot lie on the "
                                      << name_of(where)
                                      << " tier, whose bytes the calling thread does not reach (use tier::host)"};
  }
  tier_memory(const tier_memory&) = delete;
  tier_memory& operator=(const tier_memory&) = delete;
  ~tier_memory() override
  {
    for (const stand_in& it : stand_ins_)
      std::pmr::new_delete_resource()->deallocate(it.data, it.size, tensor_alignment.count());
  }

  /// The number of allocations that were not given back.
  [[nodiscard]] std::size_t live() const noexcept { return leases_.live(); }
  /// Counts addresses that were given back and never came from here, or came back twice: a defect of their user. They
  /// are left alone.
  [[nodiscard]] std::uint64_t unknown_returns() const noexcept { return unknown_returns_; }

 private:
  struct stand_in {
    void* data = nullptr;
    std::size_t size = 0;
  };

  /// @throws out_of_memory   a std::bad_alloc: no room, with the need of this moment; std::bad_alloc   a stricter
  ///   alignment than tensors have
  void* do_allocate(std::size_t size, std::size_t alignment) override
  {
    if (alignment > tensor_alignment.count()) throw std::bad_alloc{};
    const bytes wanted = size_of_lease(size);
    std::byte* const data = leases_.take(where_, wanted, agent::host);
    if (data != nullptr) return data;
    try {
      stand_ins_.emplace_back();
      stand_ins_.back() = {std::pmr::new_delete_resource()->allocate(size, tensor_alignment.count()), size};
    } catch (...) {
      if (!stand_ins_.empty() && stand_ins_.back().data == nullptr) stand_ins_.pop_back();
      leases_.give(nullptr, wanted);
      throw;
    }
    return stand_ins_.back().data;
  }

  void do_deallocate(void* data, std::size_t size, std::size_t) override
  {
    if (leases_.give(data, size_of_lease(size))) return;
    for (std::size_t index = stand_ins_.size(); index-- > 0;) {
      if (stand_ins_[index].data != data) continue;
      std::pmr::new_delete_resource()->deallocate(data, stand_ins_[index].size, tensor_alignment.count());
      stand_ins_.erase(stand_ins_.begin() + static_cast<std::ptrdiff_t>(index));
      leases_.give(nullptr, size_of_lease(size));
      return;
    }
    ++unknown_returns_;
  }

  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override
  {
    return this == &other;
  }

  /// An allocation of nothing has an address of its own too.
  [[nodiscard]] static bytes size_of_lease(std::size_t size) noexcept { return bytes{size > 0 ? size : 1}; }

  lease_table<Manager> leases_;
  tier where_;
  std::vector<stand_in> stand_ins_;
  std::uint64_t unknown_returns_ = 0;
};

}  // namespace interop
}  // namespace chunkmem::inline v0
